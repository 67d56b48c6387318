//! The report as one page that needs nothing else: text, tables, and plots drawn as SVG.

use std::fmt::Write as _;

use super::record::{Figures, Point};
use super::report::Report;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 28.0;
const TOP: f64 = 12.0;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;\
padding:0 1em;color:#1c2733;background:#fff}h1{font-size:1.3em}h2{font-size:1.05em;margin-top:2em}\
pre{background:#f2f5f8;padding:1em;overflow-x:auto;font-size:13px}svg{width:100%;height:auto}\
.axis{stroke:#8896a5;stroke-width:1}.grid{stroke:#dde4ea;stroke-width:1}text{fill:#51606f;\
font-size:12px}.a{fill:none;stroke:#1f6fb5;stroke-width:2}.b{fill:none;stroke:#d0742a;\
stroke-width:1.5}.ka{color:#1f6fb5}.kb{color:#d0742a}@media(prefers-color-scheme:dark){body{\
background:#14191f;color:#d7dee6}pre{background:#1e252d}.grid{stroke:#2a333d}text{fill:#9fb0c0}}";

/// The page.
pub(super) fn render(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>biplane bench</title><style>{STYLE}</style></head>\
         <body><h1>biplane bench: {:?}</h1><pre>{}</pre>",
        report.load.workload,
        escape(&report.text())
    );
    for (name, figures) in [
        ("Producers", &report.produce),
        ("Consumers", &report.consume),
    ] {
        if let Some(figures) = figures {
            section(&mut page, name, figures);
        }
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, name: &str, figures: &Figures) {
    let series = &figures.series;
    let rate = |point: &Point| point.megabytes_per_second;
    let mean = |point: &Point| point.mean_micros;
    let max = |point: &Point| point.max_micros;
    // Writing to a string cannot fail.
    let _ = write!(page, "<h2>{name}: megabytes a second</h2>");
    plot(page, series, &[("a", &rate)]);
    let _ = write!(
        page,
        "<h2>{name}: latency in microseconds, <span class=\"ka\">mean</span> and \
         <span class=\"kb\">longest</span></h2>"
    );
    plot(page, series, &[("a", &mean), ("b", &max)]);
}

type Value<'a> = &'a dyn Fn(&Point) -> f64;

fn plot(page: &mut String, series: &[Point], lines: &[(&str, Value<'_>)]) {
    let top = series
        .iter()
        .flat_map(|point| lines.iter().map(|(_, value)| value(point)))
        .fold(0.0, f64::max);
    let step = round_step(top / 4.0);
    let top = (top / step).ceil().max(1.0) * step;
    let last = series.last().map_or(1.0, |point| point.second.max(0.001));
    let x = |second: f64| LEFT + second / last * (WIDTH - LEFT - 8.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP);
    let _ = write!(page, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    let mut value = 0.0;
    while value <= top * 1.001 {
        let at = y(value);
        let _ = write!(
            page,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        value += step;
    }
    for tick in 0..=4 {
        let second = last * f64::from(tick) / 4.0;
        let _ = write!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second:.1} s</text>",
            x(second),
            HEIGHT - 8.0
        );
    }
    let floor = HEIGHT - BOTTOM;
    let _ = write!(
        page,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{floor}\" y2=\"{floor}\"/>"
    );
    for (class, value) in lines {
        let points = series.iter().fold(String::new(), |mut points, point| {
            let _ = write!(points, "{:.1},{:.1} ", x(point.second), y(value(point)));
            points
        });
        let _ = write!(
            page,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            points.trim_end()
        );
    }
    page.push_str("</svg>");
}

/// 1, 2 or 5 times a power of ten, not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    if wanted <= 0.0 || !wanted.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= wanted * 0.999)
        .unwrap_or(power * 10.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_large_enough() {
        for (wanted, step) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (7.0, 10.0),
            (130.0, 200.0),
        ] {
            assert!((round_step(wanted) - step).abs() < 1e-9, "{wanted}");
        }
    }

    #[test]
    fn a_plot_of_nothing_is_still_well_formed() {
        let mut page = String::new();
        plot(&mut page, &[], &[("a", &|point: &Point| point.second)]);
        assert!(page.starts_with("<svg") && page.ends_with("</svg>"));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}

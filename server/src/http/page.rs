//! The cluster page at `/`: one file without anything from elsewhere. It shows nothing before a
//! login; then it asks every node for its status, as `biplane status` does.

use super::answer::Answer;

const PAGE: &str = include_str!("page/cluster.html");
/// Scripts and styles of the page itself, requests to the nodes, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
     connect-src http: https:; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// The page.
pub(crate) fn answer() -> Answer {
    Answer::of(200, "text/html; charset=utf-8", PAGE)
        .with("content-security-policy", POLICY)
        .with("referrer-policy", "no-referrer")
        .with("x-content-type-options", "nosniff")
        .with("cache-control", "no-store")
        .without_view()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        for word in [
            "<link",
            "<img",
            "@import",
            "src=",
            "url(",
            "eval(",
            ".innerHTML",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        // What it does is look: it logs in, and all else is GET.
        let methods: Vec<_> = PAGE.match_indices("method:").collect();
        assert_eq!(methods.len(), 1, "one request that is no GET: the login");
    }
}

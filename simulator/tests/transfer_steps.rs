//! Power fails at a disk step of a state transfer: at the node that pulls, or at the one that
//! serves. The same transfer runs once undisturbed, and then once for each request that the disk
//! of the victim executed from the first RequestStateTransfer to the end of tail repair. After
//! each crash the cluster must finish, converge, and satisfy every oracle.
//!
//! Every run takes some of the steps. `BIPLANE_CRASH_STEPS=1` takes all of them and a larger
//! number every so many, each with one of the ways in which a crash treats what was not synced;
//! `BIPLANE_CRASH_STEPS=all` takes every step with every way.

use biplane_simulator::disk::CrashMode;
use biplane_simulator::options::MachineKind;
use biplane_simulator::play::Play;
use biplane_simulator::time::MILLISECOND;
use biplane_simulator::{Verdict, report};
use biplane_wire::GroupId;

const MODES: [CrashMode; 5] = [
    CrashMode::KeepAll,
    CrashMode::LoseAll,
    CrashMode::Prefix,
    CrashMode::Subset,
    CrashMode::Torn,
];
/// Crashes of one test unless the environment asks for more.
const SAMPLE: u64 = 8;
/// Crashes between two lines that say how far it is.
const PROGRESS: u64 = 100;
/// How long the joiner is away, in milliseconds.
const AWAY: u64 = 1_000;
/// How long a transfer may take, in milliseconds.
const TRANSFER_MAX: u64 = 20_000;

/// Seeds in which a scene is looked for.
const SEEDS_MAX: u64 = 10;

/// Who is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Joiner,
    Server,
}

/// Why the joiner needs a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It was away for longer than the logs of the others reach back.
    Away,
    /// Its disk is empty.
    Wiped,
}

/// One transfer that is played again and again.
#[derive(Clone, Copy, Debug)]
struct Scene {
    seed: u64,
    replicas: u8,
    loss: Loss,
    victim: Victim,
}

/// The steps of the victim while it took place.
struct Window {
    first: u64,
    last: u64,
}

impl Scene {
    const fn new(seed: u64, replicas: u8, loss: Loss, victim: Victim) -> Self {
        Self {
            seed,
            replicas,
            loss,
            victim,
        }
    }

    /// Plays until the joiner asks for the first transfer; returns joiner and victim.
    fn begin(self) -> (Play, u8, u8) {
        let mut play = Play::with(self.seed, self.replicas, MachineKind::Planes, |options| {
            options.tiny_limits = true;
            options.groups = true;
            options.users = true;
            // Metadata shall move on beyond what its journal keeps.
            options.clients = 8;
            options.churn = true;
            options.think_mean = 5 * MILLISECOND;
            // A primary that fails while one of its backups is empty takes more memory away
            // than memory-only groups promise to survive.
            options.correlated = self.victim == Victim::Server;
        });
        play.run(1_000);
        let server = play.primary(GroupId::METADATA);
        let mut backups = (1..self.replicas).map(|next| (server + next) % self.replicas);
        let joiner = match self.loss {
            Loss::Away => {
                let joiner = backups.next().expect("a backup");
                play.crash(joiner, CrashMode::LoseAll);
                joiner
            }
            // At some moment the others have everything that one of them has.
            Loss::Wiped => (0..5_000)
                .find_map(|_| {
                    play.run(1);
                    backups.clone().find(|&backup| play.wipe(backup))
                })
                .expect("a backup that may lose its disk"),
        };
        play.run(AWAY);
        let asked = play.counted("sent: RequestStateTransfer");
        play.start(joiner);
        let asks = |play: &Play| play.counted("sent: RequestStateTransfer") > asked;
        assert!(
            play.run_while_not(TRANSFER_MAX, asks),
            "{self:?}: no request"
        );
        let victim = match self.victim {
            Victim::Joiner => joiner,
            Victim::Server => server,
        };
        (play, joiner, victim)
    }

    /// The transfer undisturbed; `None` where repair was enough for a plane.
    fn window(self) -> Option<Window> {
        let (mut play, joiner, victim) = self.begin();
        let first = play.disk_steps(victim) + 1;
        let caught_up = |play: &Play| play.is_caught_up(joiner);
        let joined = play.run_while_not(TRANSFER_MAX, caught_up);
        assert!(joined, "{self:?}: the joiner does not catch up");
        let last = play.disk_steps(victim);
        for plane in ["metadata", "partition"] {
            if play.counted(&format!("transfers installed: {plane}")) == 0 {
                return None;
            }
        }
        self.expect_passed(play, "undisturbed");
        Some(Window { first, last })
    }

    /// The same with a crash; `heard` is whether the victim acts on its last completion.
    fn crash(self, step: u64, mode: CrashMode, heard: bool) {
        let (mut play, joiner, victim) = self.begin();
        let what = format!("step {step} {mode:?} heard {heard}");
        play.crash_at_step(victim, step, mode, heard);
        let down = |play: &Play| !play.is_running(victim);
        let crashed = play.run_while_not(TRANSFER_MAX, down);
        assert!(crashed, "{self:?}: {what}: the step is never reached");
        play.run(30);
        play.start(victim);
        let caught_up = |play: &Play| play.is_caught_up(joiner);
        play.run_while_not(1_000, caught_up);
        self.expect_passed(play, &what);
    }

    fn expect_passed(self, play: Play, what: &str) {
        let outcome = play.finish();
        let line = report::verdict_line(&outcome);
        assert_eq!(outcome.verdict, Verdict::Passed, "{self:?}: {what}: {line}");
    }

    /// The first scene from this seed on in which both planes transfer something.
    fn with_transfers(self) -> (Self, Window) {
        let scenes = (self.seed..self.seed + SEEDS_MAX).map(|seed| Self { seed, ..self });
        let mut played = scenes.map(|scene| (scene, scene.window()));
        let found = played.find_map(|(scene, window)| Some((scene, window?)));
        found.unwrap_or_else(|| panic!("{self:?}: nothing of a plane was installed"))
    }

    /// Crashes at all steps, or at some spread over the window.
    fn play(self) {
        let (scene, window) = self.with_transfers();
        scene.play_within(&window);
    }

    fn play_within(self, window: &Window) {
        let Window { first, last } = *window;
        let steps = (last + 1).saturating_sub(first);
        assert!(steps > 20, "{self:?}: a transfer of {steps} steps");
        let asked = std::env::var("BIPLANE_CRASH_STEPS").ok();
        let (stride, all) = match asked.as_deref() {
            Some("all") => (1, true),
            Some(text) => (
                text.parse().expect("BIPLANE_CRASH_STEPS is a number"),
                false,
            ),
            None => (steps.div_ceil(SAMPLE), false),
        };
        let mut runs = 0u64;
        println!("{self:?}: steps {first} to {last}");
        for (number, step) in (first..=last).step_by(stride as usize).enumerate() {
            for (index, mode) in MODES.into_iter().enumerate() {
                for heard in [false, true] {
                    if all || (index, heard) == (number % MODES.len(), number % 2 == 1) {
                        self.crash(step, mode, heard);
                        runs += 1;
                        if runs.is_multiple_of(PROGRESS) {
                            println!("{self:?}: {runs} crashes, at step {step}");
                        }
                    }
                }
            }
        }
        println!("{self:?}: {runs} crashes");
    }
}

#[test]
fn joiner_that_was_away_survives_a_crash_at_any_step() {
    Scene::new(5, 3, Loss::Away, Victim::Joiner).play();
}

#[test]
fn joiner_with_an_empty_disk_survives_a_crash_at_any_step() {
    Scene::new(5, 3, Loss::Wiped, Victim::Joiner).play();
}

#[test]
fn server_of_one_that_was_away_may_crash_at_any_step() {
    Scene::new(5, 3, Loss::Away, Victim::Server).play();
}

#[test]
fn server_of_an_empty_one_may_crash_at_any_step() {
    Scene::new(5, 3, Loss::Wiped, Victim::Server).play();
}

#[test]
fn joiner_among_five_survives_a_crash_at_any_step() {
    Scene::new(5, 5, Loss::Away, Victim::Joiner).play();
}

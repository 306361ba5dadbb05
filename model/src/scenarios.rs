//! The models in which no promise is broken.

use crate::rules::{Rules, TwoSteps, Wants};

const RIVAL: Wants = Wants::ONE_LOCK;
const EXTENDS: Wants = Wants {
    extends: 1,
    ..RIVAL
};

/// What is in a model, and the model, with a clock that stops at `ticks`.
pub fn scenarios(ticks: u8) -> Vec<(&'static str, Rules)> {
    let rules = Rules {
        ticks,
        ..Rules::default()
    };
    vec![
        ("acquire, release, undo", rules),
        (
            "clocks that drift within the margin",
            Rules { drift: 1, ..rules },
        ),
        (
            "an acquire that is repeated",
            Rules {
                callers: &[
                    Wants {
                        repeats: 1,
                        ..RIVAL
                    },
                    RIVAL,
                ],
                ..rules
            },
        ),
        (
            "two extends, longer and shorter",
            Rules {
                callers: &[
                    Wants {
                        extends: 2,
                        ..RIVAL
                    },
                    RIVAL,
                ],
                ..rules
            },
        ),
        (
            "a crash and a restart with durability",
            Rules {
                ticks: ticks - 1,
                callers: &[EXTENDS, RIVAL],
                crashes: 1,
                ..rules
            },
        ),
        (
            "a database that looks first and changes later",
            Rules {
                ticks: ticks - 1,
                callers: &[EXTENDS, RIVAL],
                two_steps: TwoSteps::Extends,
                ..rules
            },
        ),
    ]
}

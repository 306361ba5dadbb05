//! Visits every state of larger models than the tests do: `make proof`.

use std::time::Instant;

use stateright::{Checker, Model};
use syncguard_model::{Rules, Wants, scenarios};

fn main() {
    let text = std::env::args().nth(1).unwrap_or_else(|| "6".to_owned());
    let ticks: u8 = text.parse().expect("the argument is the number of ticks");
    let mut all = scenarios(ticks);
    // This one has more states than the others: its clock stops earlier.
    let comes_back = Rules {
        ticks: ticks - 2,
        callers: &[
            Wants {
                locks: 2,
                ..Wants::ONE_LOCK
            },
            Wants::ONE_LOCK,
        ],
        ..Rules::default()
    };
    all.push(("two locks of one caller, one after the other", comes_back));
    for (name, rules) in all {
        let begun = Instant::now();
        let checker = rules.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        println!(
            "{name}: {} ticks, {} states in {:.0} s, no promise is broken",
            rules.ticks,
            checker.unique_state_count(),
            begun.elapsed().as_secs_f64()
        );
    }
}

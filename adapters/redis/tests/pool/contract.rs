//! The contract of a store, whole, also while the server has stopped; and its fences by the clock.

use std::sync::Arc;

use crate::support::Setup;
use syncguard::testkit::contract::{self, ContractStore};
use syncguard::{FenceSource, testkit};

fn store(fences: FenceSource) -> ContractStore {
    let setup = Arc::new(Setup::start());
    let stopped = Arc::clone(&setup);
    ContractStore::new(setup.store(10).with_fences(fences))
        .while_hanging(move |work| {
            let stopped = stopped.stop();
            work();
            drop(stopped);
        })
        .keep(setup)
}

testkit::contract!(keeps_the_contract, || store(FenceSource::Counter));

#[test]
fn fences_of_the_clock_keep_it_too() {
    for check in [
        contract::fences_grow,
        contract::the_same_id_again_answers_the_stored_grant,
        contract::holders_never_overlap,
    ] {
        store(FenceSource::Clock).run(check);
    }
}

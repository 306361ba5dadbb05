//! Tests that the store which the documentation shows keeps the contract.

#[allow(dead_code)]
#[path = "../../examples/own_store.rs"]
mod example;

use std::sync::Arc;

use example::Local;
use syncguard::Call;
use syncguard::testkit::{self, contract::ContractStore};

fn local() -> ContractStore {
    let store = Arc::new(Local::open());
    let hung = Arc::clone(&store);
    ContractStore::new(store).while_hanging(move |work| {
        let _state = hung.state(&Call::new()).expect("the state");
        work();
    })
}

testkit::contract!(keeps_the_contract, local);

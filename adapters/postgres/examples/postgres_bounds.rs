//! Measures locks over a pool beside the built-in driver, and writes the rows of `docs/own-pools.md`: `make adapters-bounds`.

#[path = "../../cases/bounds.rs"]
mod bounds;
#[path = "../tests/pool/support.rs"]
mod support;

fn main() -> std::process::ExitCode {
    bounds::main()
}

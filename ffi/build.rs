//! Gives the linker what cargo does not: the SONAME of the C library, and that it stays mapped after dlclose. Uses the standard library only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let args: &[&str] = match os.as_str() {
        // The name programs record. Code of a library whose threads still run must stay mapped after dlclose.
        "linux" => &["-Wl,-soname,libsyncguard.so.0", "-Wl,-z,nodelete"],
        "macos" => &["-Wl,-install_name,@rpath/libsyncguard.0.dylib"],
        _ => &[],
    };
    for arg in args {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
}

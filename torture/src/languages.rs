//! Builds the workers in C and Go against the library of this checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::Language;

pub struct Programs {
    pub rust: PathBuf,
    pub c: PathBuf,
    pub go: PathBuf,
    /// Moves the wall clock of the program it is preloaded into.
    pub clock: PathBuf,
}

fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("the package lies in the repository")
}

fn succeed(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}

impl Programs {
    /// Builds them in `dir`; only Rust's if `others` is not set.
    pub fn build(dir: &Path, others: bool) -> Self {
        let rust = std::env::current_exe().expect("this program");
        let programs = Self {
            c: dir.join("worker-c"),
            go: dir.join("worker-go"),
            clock: dir.join("wall_clock.so"),
            rust,
        };
        let mut shim = Command::new("cc");
        shim.args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&programs.clock)
            .arg(root().join("tests/support/wall_clock.c"));
        succeed(&mut shim);
        if others {
            let library = programs.library();
            programs.build_c(&library);
            programs.build_go(&library);
        }
        programs
    }

    pub fn of(&self, language: Language) -> Command {
        match language {
            Language::Rust => {
                let mut command = Command::new(&self.rust);
                command.arg("worker");
                command
            }
            Language::C => Command::new(&self.c),
            Language::Go => Command::new(&self.go),
        }
    }

    /// The directory of `libsyncguard.so`, built with the profile of this program.
    fn library(&self) -> PathBuf {
        let profile = self.rust.parent().expect("a profile's directory");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(root())
            .args(["build", "--quiet", "-p", "syncguard-ffi", "--lib"])
            .arg("--target-dir")
            .arg(profile.parent().expect("the target directory"));
        if profile.file_name().is_some_and(|name| name == "release") {
            cargo.arg("--release");
        }
        // Build scripts that see what cargo told this program are run again.
        for (name, _) in std::env::vars() {
            if name.starts_with("CARGO_") && name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" {
                cargo.env_remove(name);
            }
        }
        succeed(&mut cargo);
        // Programs look for the SONAME. Another program may be making the same link.
        let _ = std::os::unix::fs::symlink("libsyncguard.so", profile.join("libsyncguard.so.0"));
        profile.to_owned()
    }

    fn build_c(&self, library: &Path) {
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-I"])
            .arg(root().join("include"))
            .arg(root().join("torture/worker.c"))
            .arg("-o")
            .arg(&self.c)
            .arg("-L")
            .arg(library)
            .arg("-lsyncguard")
            .arg(format!("-Wl,-rpath,{}", library.display()))
            .arg("-pthread");
        succeed(&mut cc);
    }

    fn build_go(&self, library: &Path) {
        let quoted = |flag: String| format!("'{flag}'");
        let library = library.display();
        let flags = [format!("-L{library}"), format!("-Wl,-rpath,{library}")].map(quoted);
        let include = root().join("include");
        let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
        go.current_dir(root().join("ffi/go"))
            .args(["build", "-tags=syncguard_nopkgconfig", "-o"])
            .arg(&self.go)
            .arg("./internal/torture")
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "1")
            .env("CGO_CFLAGS", quoted(format!("-I{}", include.display())))
            .env("CGO_LDFLAGS", flags.join(" "));
        succeed(&mut go);
    }
}

//! `make install`, and programs built against the installed tree alone: with pkg-config, with CMake, shared and static.

#[path = "../../tests/support/limit.rs"]
mod limit;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::{as_outside, features, library, root, scratch, succeed};

/// With a space: what is installed must not care.
const PREFIX: &str = "/opt/sync guard";

/// The installed tree: staged, so that nothing outside the test's own directory is touched.
fn stage() -> &'static Path {
    static STAGE: OnceLock<tempfile::TempDir> = OnceLock::new();
    STAGE
        .get_or_init(|| {
            let stage = scratch();
            let profile = library();
            let release = profile.file_name().is_some_and(|p| p == "release");
            // Make takes a `$` for a variable's.
            let set = |name: &str, value: &str| format!("{name}={}", value.replace('$', "$$"));
            let target = profile.parent().expect("the target directory");
            let mut make = Command::new("make");
            as_outside(&mut make);
            succeed(
                make.current_dir(root())
                    .args(["-f", "ffi/ffi.mk", "install"])
                    .arg(set("PREFIX", PREFIX))
                    .arg(set("DESTDIR", &stage.path().display().to_string()))
                    .arg(set("PROFILE", if release { "release" } else { "dev" }))
                    .arg(set("CARGO", &format!("'{}'", env!("CARGO"))))
                    .arg(set(
                        "FFI_CARGO_FLAGS",
                        &format!("--quiet {}", features().join(" ")),
                    ))
                    .arg(set("CARGO_TARGET_DIR", &target.display().to_string()))
                    .env_remove("MAKEFLAGS"),
                "make install",
            );
            stage
        })
        .path()
}

fn tree() -> PathBuf {
    stage().join(PREFIX.trim_start_matches('/'))
}

/// What pkg-config says of the staged tree.
fn pkg_config(args: &[&str]) -> Vec<String> {
    let output = succeed(
        Command::new("pkg-config")
            .args(args)
            .arg("syncguard")
            .env("PKG_CONFIG_PATH", tree().join("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", stage()),
        "pkg-config",
    );
    words(&String::from_utf8_lossy(&output.stdout))
}

/// The words of pkg-config's answer, which are quoted as for a shell: a backslash stands before what would end a word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\n' => words.push(std::mem::take(&mut word)),
            '\\' => word.extend(letters.next()),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn url(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("locks.db").display())
}

#[test]
fn the_tree_is_complete() {
    let version = env!("CARGO_PKG_VERSION");
    let lib = tree().join("lib");
    for file in [
        format!("lib/libsyncguard.so.{version}"),
        "lib/libsyncguard.a".to_owned(),
        "lib/pkgconfig/syncguard.pc".to_owned(),
        "lib/cmake/syncguard/syncguardConfig.cmake".to_owned(),
        "lib/cmake/syncguard/syncguardConfigVersion.cmake".to_owned(),
        "include/syncguard.h".to_owned(),
        "include/syncguard.hpp".to_owned(),
    ] {
        assert!(tree().join(&file).is_file(), "{file} is not there");
    }
    let link = |name: &str| fs::read_link(lib.join(name)).expect("a link");
    assert_eq!(link("libsyncguard.so"), Path::new("libsyncguard.so.0"));
    assert_eq!(
        link("libsyncguard.so.0"),
        Path::new(&format!("libsyncguard.so.{version}"))
    );
    assert_eq!(pkg_config(&["--modversion"]), [version]);
    for file in [
        "pkgconfig/syncguard.pc",
        "cmake/syncguard/syncguardConfig.cmake",
    ] {
        let text = fs::read_to_string(lib.join(file)).expect("a text");
        assert!(
            !text.contains('@'),
            "something was left open in {file}: {text}"
        );
    }
}

/// Nothing in the static library can meet a name of the host's.
#[test]
fn the_static_library_defines_our_names_only() {
    let output = succeed(
        Command::new("nm")
            .args(["--defined-only", "--extern-only", "--format=posix"])
            .arg(tree().join("lib/libsyncguard.a")),
        "nm",
    );
    let names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains(' ') && !line.ends_with(':'))
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(name.starts_with("syncguard_"), "{name} is global");
    }
}

#[test]
fn with_pkg_config_from_an_empty_directory() {
    let dir = scratch();
    for (compiler, source) in [("gcc", "c/quickstart.c"), ("g++", "cpp/quickstart.cpp")] {
        let program = dir.path().join(compiler);
        succeed(
            Command::new(compiler)
                .current_dir(dir.path())
                .arg(root().join("examples").join(source))
                .args(pkg_config(&["--cflags", "--libs"]))
                .arg("-o")
                .arg(&program),
            "compiling with pkg-config",
        );
        succeed(
            Command::new(&program)
                .arg(url(dir.path()))
                .env("LD_LIBRARY_PATH", tree().join("lib")),
            "the program",
        );
    }
}

#[test]
fn with_cmake_from_an_empty_directory() {
    let dir = scratch();
    // CMake itself cannot build sources in a directory with an apostrophe.
    let checkout = dir.path().join("checkout");
    std::os::unix::fs::symlink(root(), &checkout).expect("a link");
    succeed(
        Command::new("cmake")
            .arg("-S")
            .arg(checkout.join("ffi/tests/install"))
            .arg("-B")
            .arg(dir.path())
            .arg(format!("-DCMAKE_PREFIX_PATH={}", tree().display()))
            .arg(format!(
                "-DEXAMPLES={}",
                checkout.join("examples").display()
            )),
        "cmake",
    );
    succeed(
        Command::new("cmake").arg("--build").arg(dir.path()),
        "cmake --build",
    );
    // CMake records where the library is; no other help is needed.
    for name in ["c_quickstart", "cpp_quickstart", "c_static"] {
        let store = scratch();
        succeed(
            Command::new(dir.path().join(name))
                .arg(url(store.path()))
                .env_remove("LD_LIBRARY_PATH"),
            name,
        );
    }
    let wanted = dir.path().join("wanted");
    fs::create_dir(&wanted).expect("a directory");
    fs::write(
        wanted.join("CMakeLists.txt"),
        "cmake_minimum_required(VERSION 3.13)\nproject(newer C)\nfind_package(syncguard 99 REQUIRED)\n",
    )
    .expect("a file");
    let newer = Command::new("cmake")
        .arg("-S")
        .arg(&wanted)
        .arg("-B")
        .arg(wanted.join("build"))
        .arg(format!("-DCMAKE_PREFIX_PATH={}", tree().display()))
        .output()
        .expect("cmake");
    assert!(
        !newer.status.success(),
        "a version that does not exist was found"
    );
}

/// Shared or static, before us or after us: the host's SQLite and ours do not meet.
#[test]
fn static_beside_the_hosts_own_sqlite() {
    let dir = scratch();
    let private = pkg_config(&["--static", "--libs"]);
    for (n, (before, after)) in [
        (vec![], vec!["-lsqlite3"]),
        (vec!["-lsqlite3"], vec![]),
        (vec![], vec!["-l:libsqlite3.a"]),
        (vec!["-l:libsqlite3.a"], vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let program = dir.path().join(format!("host{n}"));
        succeed(
            Command::new("gcc")
                .args(["-std=c99", "-Wall", "-Wextra", "-Werror"])
                .arg(root().join("ffi/tests/install/host.c"))
                .args(pkg_config(&["--cflags"]))
                .args(before)
                .args(private.iter().map(|lib| match lib.as_str() {
                    "-lsyncguard" => "-l:libsyncguard.a",
                    other => other,
                }))
                .args(after)
                .args(["-lm", "-o"])
                .arg(&program),
            "linking statically",
        );
        let needed = succeed(Command::new("ldd").arg(&program), "ldd");
        assert!(!String::from_utf8_lossy(&needed.stdout).contains("libsyncguard"));
        succeed(Command::new(&program).arg(url(dir.path())), "the host");
    }
}

//! Tests `make install`, and builds programs against the installed files alone: with pkg-config, with CMake, shared and static.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::support::{as_outside, library, root, scratch, succeed};

/// With a space: what is installed must not care.
const PREFIX: &str = "/opt/sync guard";

/// `make` of a target in ffi.mk, staged in a directory, with the library of this test.
fn make(target: &str, stage: &Path) -> Command {
    let profile = library();
    let release = profile.file_name().is_some_and(|p| p == "release");
    // Make takes a `$` for a variable's.
    let set = |name: &str, value: &str| format!("{name}={}", value.replace('$', "$$"));
    let built = profile.parent().expect("the target directory");
    let mut make = Command::new("make");
    as_outside(&mut make);
    make.current_dir(root())
        .args(["-f", "ffi/ffi.mk", target])
        .arg(set("PREFIX", PREFIX))
        .arg(set("DESTDIR", &stage.display().to_string()))
        .arg(set("PROFILE", if release { "release" } else { "dev" }))
        .arg(set("CARGO", &format!("'{}'", env!("CARGO"))))
        .arg(set("FFI_CARGO_FLAGS", "--quiet"))
        .arg(set("CARGO_TARGET_DIR", &built.display().to_string()))
        .env_remove("MAKEFLAGS");
    make
}

/// One at a time: what is to be installed is made ready in one directory.
fn install(stage: &Path) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    succeed(&mut make("install", stage), "make install");
}

/// The installed tree: staged, so that nothing outside the test's own directory is touched.
fn stage() -> &'static Path {
    static STAGE: OnceLock<tempfile::TempDir> = OnceLock::new();
    STAGE
        .get_or_init(|| {
            let stage = scratch();
            install(stage.path());
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
        format!("lib/.debug/libsyncguard.so.{version}.debug"),
        "lib/libsyncguard.a".to_owned(),
        "lib/pkgconfig/syncguard.pc".to_owned(),
        "lib/pkgconfig/syncguard-static.pc".to_owned(),
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
        "pkgconfig/syncguard-static.pc",
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

/// The sections of an object, an archive or a library.
fn sections(file: &Path) -> String {
    let output = succeed(
        Command::new("readelf")
            .args(["--sections", "--wide"])
            .arg(file),
        "readelf",
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_only_a_debugger_needs_is_kept_apart() {
    let name = format!("libsyncguard.so.{}", env!("CARGO_PKG_VERSION"));
    let lib = tree().join("lib");
    let stripped = sections(&lib.join(&name));
    assert!(
        !stripped.contains(".debug_info")
            && !stripped.contains(".debug_line")
            && !stripped.contains(".symtab"),
        "{stripped}"
    );
    assert!(stripped.contains(".gnu_debuglink"), "{stripped}");
    let archive = sections(&lib.join("libsyncguard.a"));
    assert!(
        !archive.contains(".debug_info") && !archive.contains(".debug_line"),
        "{archive}"
    );
    assert!(sections(&lib.join(format!(".debug/{name}.debug"))).contains(".debug_line"));
}

/// All files under a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn uninstalling_removes_what_was_installed_and_nothing_else() {
    let stage = scratch();
    install(stage.path());
    assert!(files(stage.path()).len() > 8);
    let lib = stage
        .path()
        .join(PREFIX.trim_start_matches('/'))
        .join("lib");
    let others = [
        lib.join("libother.so"),
        lib.join("pkgconfig/other.pc"),
        lib.join(".debug/libother.so.debug"),
    ];
    for other in &others {
        fs::write(other, "").expect("a file");
    }
    for _ in 0..2 {
        succeed(&mut make("uninstall", stage.path()), "make uninstall");
        let mut left = files(stage.path());
        left.sort_unstable();
        let mut wanted = others.to_vec();
        wanted.sort_unstable();
        assert_eq!(left, wanted);
    }
    assert!(!lib.join("cmake/syncguard").exists());
}

/// The command comes with its man pages and completions.
#[test]
fn the_command_is_installed_with_its_pages() {
    let tree = tree();
    let version = succeed(
        Command::new(tree.join("bin/syncguard")).arg("--version"),
        "syncguard --version",
    );
    let said = String::from_utf8_lossy(&version.stdout).into_owned();
    assert_eq!(said, format!("syncguard {}\n", env!("CARGO_PKG_VERSION")));
    let share = tree.join("share");
    for (file, text) in [
        ("man/man1/syncguard.1", "Exit codes"),
        ("man/man1/syncguard-run.1", "grace"),
        (
            "bash-completion/completions/syncguard",
            "conflict-exit-code",
        ),
        ("zsh/site-functions/_syncguard", "conflict-exit-code"),
        (
            "fish/vendor_completions.d/syncguard.fish",
            "conflict-exit-code",
        ),
    ] {
        let found = fs::read_to_string(share.join(file)).expect(file);
        assert!(found.contains(text), "{file}");
    }
}

/// Not only the library but all of the program: no shared object is left that it needs.
#[test]
fn a_wholly_static_program_links_and_runs() {
    let dir = scratch();
    let program = dir.path().join("static");
    succeed(
        Command::new("gcc")
            .arg("-static")
            .arg(root().join("examples/c/quickstart.c"))
            .args(pkg_config(&["--static", "--cflags", "--libs"]))
            .arg("-o")
            .arg(&program),
        "linking with -static",
    );
    let headers = succeed(
        Command::new("readelf")
            .args(["--program-headers", "--wide"])
            .arg(&program),
        "readelf",
    );
    assert!(!String::from_utf8_lossy(&headers.stdout).contains("INTERP"));
    let output = succeed(Command::new(&program).arg(url(dir.path())), "the program");
    assert!(String::from_utf8_lossy(&output.stdout).contains("released"));
}

/// A Go program with the library inside: it runs where nothing of ours is installed; also with all else inside.
#[test]
fn a_go_program_holds_the_whole_library() {
    let dir = scratch();
    let go = |args: &[&str]| {
        let mut go = Command::new(std::env::var_os("GO").unwrap_or_else(|| "go".into()));
        go.current_dir(root().join("ffi/go"))
            .args(args)
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "1")
            .env("PKG_CONFIG_PATH", tree().join("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", stage())
            .env_remove("CGO_LDFLAGS")
            .env_remove("CGO_CFLAGS");
        go
    };
    for (name, all) in [("ours", false), ("all", true)] {
        let program = dir.path().join(name);
        let mut build = go(&["build", "-tags", "syncguard_static", "-o"]);
        build.arg(&program);
        if all {
            build.args(["-ldflags", "-linkmode external -extldflags -static"]);
        }
        succeed(build.arg("./internal/contend"), "go build");
        let needed = succeed(
            Command::new("readelf")
                .args(["--dynamic", "--wide"])
                .arg(&program),
            "readelf",
        );
        let needed = String::from_utf8_lossy(&needed.stdout);
        assert!(!needed.contains("libsyncguard"), "{needed}");
        assert_eq!(needed.contains("NEEDED"), !all, "{needed}");
        let mut run = Command::new(&program);
        succeed(
            run.args([&url(dir.path()), "k", "50"])
                .env_remove("LD_LIBRARY_PATH"),
            "the program",
        );
    }
    // Without cgo one line says what is missing.
    let output = go(&["build", "-o", "/dev/null", "./internal/contend"])
        .env("CGO_ENABLED", "0")
        .output()
        .expect("go");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.lines().filter(|line| !line.starts_with('#')).count() == 1
            && said.contains("syncguard_needs_cgo"),
        "{said}"
    );
}

/// A `cargo` and a `rustc` of a distribution: they tell their version, and fail at whatever else they are asked.
fn old_rust(dir: &Path, cargo: &str, rustc: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, version) in [("cargo", cargo), ("rustc", rustc)] {
        let text = format!(
            "#!/bin/sh\ncase \"$1\" in --version) echo '{name} {version} (fd9c4297c 2022-07-01)';; *) \
             echo 'expected a boolean or an integer for key `profile.dev.debug`' >&2; exit 101;; esac\n"
        );
        let file = dir.join(name);
        fs::write(&file, text).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
}

#[test]
fn a_rust_that_is_too_old_is_told_which_is_needed_and_where_to_get_it() {
    let need = env!("CARGO_PKG_RUST_VERSION");
    for (cargo, rustc) in [
        ("1.63.0", "1.63.0"),
        ("1.95.0", "1.63.0"),
        ("0.66.0", "1.95.0"),
    ] {
        let dir = scratch();
        old_rust(dir.path(), cargo, rustc);
        let path = std::env::var("PATH").expect("a PATH");
        for target in ["demo", "test", "ffi-build"] {
            let output = Command::new("make")
                .current_dir(root())
                .arg(target)
                .arg("CARGO=cargo")
                .arg(format!(
                    "CARGO_TARGET_DIR={}",
                    dir.path().join("none").display()
                ))
                .env("PATH", format!("{}:{path}", dir.path().display()))
                .env_remove("MAKEFLAGS")
                .env_remove("RUSTC")
                .output()
                .expect("make");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "make {target} went on: {said}");
            assert!(
                said.contains(&format!("needs Rust {need} or later")),
                "make {target}: {said}"
            );
            assert!(
                said.contains("1.63.0 (") || said.contains("0.66.0 ("),
                "make {target}: {said}"
            );
            assert!(said.contains("rustup"), "make {target}: {said}");
            assert!(!said.contains("profile.dev.debug"), "make {target}: {said}");
        }
    }
}

#[test]
fn help_tells_of_every_target_that_others_use() {
    let output = succeed(
        Command::new("make")
            .current_dir(root())
            .arg("help")
            .env_remove("MAKEFLAGS"),
        "make help",
    );
    let said = String::from_utf8_lossy(&output.stdout);
    for target in [
        "demo",
        "test",
        "install",
        "uninstall",
        "ffi-build",
        "header",
        "bench",
        "help",
    ] {
        assert!(
            said.contains(&format!("  make {target} ")),
            "{target} is missing:\n{said}"
        );
    }
}

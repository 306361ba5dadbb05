# The C library: its header and its installation. Included by the Makefile of the repository; works alone too:
#   make -f ffi/ffi.mk install PREFIX=/usr/local DESTDIR=

FFI_ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)

PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
CARGO ?= cargo
# The cargo profile that is built and installed, and further arguments for cargo, such as --no-default-features --features sqlite.
PROFILE ?= release
FFI_CARGO_FLAGS ?=
CARGO_TARGET_DIR ?= $(FFI_ROOT)/target
LD ?= ld
OBJCOPY ?= objcopy
AR ?= ar

FFI_VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' $(FFI_ROOT)/Cargo.toml | head -n 1)
FFI_SOVERSION := 0
FFI_BUILT := $(CARGO_TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
FFI_STAGE := $(FFI_BUILT)/install
# What a program needs beside the static library: `cargo rustc -p syncguard-ffi -- --print native-static-libs` tells.
FFI_LIBS_PRIVATE := -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc

FFI_EMPTY :=
FFI_SPACE := $(FFI_EMPTY) $(FFI_EMPTY)

.PHONY: header install ffi-build

# include/syncguard.h from the comments in ffi/src.
header:
	cd $(FFI_ROOT) && SYNCGUARD_BLESS=1 $(CARGO) test -q -p syncguard-ffi --test header the_header_is_current

# The static library holds a whole SQLite and the Rust runtime. All but our own names are made local, so that a program which links
# its own SQLite, or another Rust library, links and runs with each its own. The bitcode that Rust leaves in objects is removed:
# binutils with LLVM's plugin stumble over it.
ffi-build:
	cd $(FFI_ROOT) && $(CARGO) build -p syncguard-ffi --lib --profile $(PROFILE) --target-dir $(CARGO_TARGET_DIR) $(FFI_CARGO_FLAGS)
	mkdir -p $(FFI_STAGE)
	rm -f $(FFI_STAGE)/libsyncguard.a
	$(LD) -r --whole-archive $(FFI_BUILT)/libsyncguard.a -o $(FFI_STAGE)/syncguard.o
	$(OBJCOPY) --wildcard --keep-global-symbol='syncguard_*' --remove-section=.llvmbc --remove-section=.llvmcmd $(FFI_STAGE)/syncguard.o
	$(AR) rcs $(FFI_STAGE)/libsyncguard.a $(FFI_STAGE)/syncguard.o
	rm -f $(FFI_STAGE)/syncguard.o
	for file in syncguard.pc syncguardConfig.cmake syncguardConfigVersion.cmake; do \
	  sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|g' \
	      -e 's|@PC_INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
	      -e 's|@VERSION@|$(FFI_VERSION)|g' -e 's|@SOVERSION@|$(FFI_SOVERSION)|g' \
	      -e 's|@LIBS_PRIVATE@|$(FFI_LIBS_PRIVATE)|g' \
	      -e 's|@LIBS_LIST@|$(subst $(FFI_SPACE),;,$(FFI_LIBS_PRIVATE))|g' \
	      $(FFI_ROOT)/ffi/pkg/$$file.in > $(FFI_STAGE)/$$file || exit 1; \
	done

install: ffi-build
	install -d '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(LIBDIR)/cmake/syncguard' '$(DESTDIR)$(INCLUDEDIR)'
	install -m 755 $(FFI_BUILT)/libsyncguard.so '$(DESTDIR)$(LIBDIR)/libsyncguard.so.$(FFI_VERSION)'
	ln -sf libsyncguard.so.$(FFI_VERSION) '$(DESTDIR)$(LIBDIR)/libsyncguard.so.$(FFI_SOVERSION)'
	ln -sf libsyncguard.so.$(FFI_SOVERSION) '$(DESTDIR)$(LIBDIR)/libsyncguard.so'
	install -m 644 $(FFI_STAGE)/libsyncguard.a '$(DESTDIR)$(LIBDIR)/'
	install -m 644 $(FFI_ROOT)/include/syncguard.h $(FFI_ROOT)/include/syncguard.hpp '$(DESTDIR)$(INCLUDEDIR)/'
	install -m 644 $(FFI_STAGE)/syncguard.pc '$(DESTDIR)$(LIBDIR)/pkgconfig/'
	install -m 644 $(FFI_STAGE)/syncguardConfig.cmake $(FFI_STAGE)/syncguardConfigVersion.cmake '$(DESTDIR)$(LIBDIR)/cmake/syncguard/'

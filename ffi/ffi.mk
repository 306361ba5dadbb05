# The C library: its header and its installation. Included by the Makefile of the repository; works alone too:
#   make -f ffi/ffi.mk install PREFIX=/usr/local DESTDIR=

# Paths may hold spaces and the like: they are never prerequisites, and FFI_ROOT and all made of it are quoted for the shell.
# Make's own rule stays: a `$` in what you set is written `$$`.
ffi_quote = '$(subst ','\'',$(1))'

FFI_PATH := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)
FFI_ROOT := $(call ffi_quote,$(FFI_PATH))
ifneq ($(shell test -f $(FFI_ROOT)/ffi/ffi.mk && echo yes),yes)
$(error make splits the path of ffi.mk at its spaces; change to the repository and run: make -f ffi/ffi.mk)
endif

PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
CARGO ?= cargo
# The cargo profile that is built and installed, and further arguments for cargo, such as --no-default-features --features sqlite.
PROFILE ?= release
FFI_CARGO_FLAGS ?=
CARGO_TARGET_DIR ?= $(FFI_PATH)/target
LD ?= ld
OBJCOPY ?= objcopy
AR ?= ar
STRIP ?= strip

FFI_VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' $(FFI_ROOT)/Cargo.toml | head -n 1)
FFI_SOVERSION := 0
FFI_BUILT := $(call ffi_quote,$(CARGO_TARGET_DIR))/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
FFI_STAGE := $(FFI_BUILT)/install
# What a program links beside the static library, as `cargo rustc -p syncguard-ffi -- --print native-static-libs` prints it.
# The unwinder as an archive, because `cc -static` has no shared one.
FFI_LIBS_PRIVATE := -lgcc_eh -lutil -lrt -lpthread -lm -ldl -lc

FFI_EMPTY :=
FFI_SPACE := $(FFI_EMPTY) $(FFI_EMPTY)
FFI_HASH := \#
FFI_TO_LIB = $(call ffi_quote,$(DESTDIR)$(LIBDIR))
FFI_TO_INCLUDE = $(call ffi_quote,$(DESTDIR)$(INCLUDEDIR))
FFI_TO_BIN = $(call ffi_quote,$(DESTDIR)$(BINDIR))
FFI_TO_DATA = $(call ffi_quote,$(DESTDIR)$(DATADIR))

# sed's expression that puts a text in the place of a @NAME@.
ffi_put = -e $(call ffi_quote,s|@$(1)@|$(subst |,\|,$(subst &,\&,$(subst \,\\,$(2))))|g)
# A directory for the .pc file, where `#` begins a comment; relative to the prefix if it lies there.
ffi_pc = $(subst $(FFI_HASH),\$(FFI_HASH),$(subst @@,,$(subst @@$(PREFIX)/,$${prefix}/,@@$(1))))

.PHONY: header install uninstall ffi-build

# include/syncguard.h from the comments in ffi/src.
header: ## writes include/syncguard.h
	cd $(FFI_ROOT) && SYNCGUARD_BLESS=1 $(CARGO) test -q -p syncguard-ffi --test shipped the_header_is_current

# The static library holds a whole SQLite and the Rust runtime. All but our own names are made local, so that a program which links
# its own SQLite, or another Rust library, links and runs with each its own. The bitcode that Rust leaves in objects is removed:
# binutils with LLVM's plugin stumble over it.
# What a debugger needs is kept in a file of its own, which it finds by itself beside the library, under .debug.
# A user without Rust, or with a Rust that is too old, installs what another user has built. Root is often such a user.
FFI_SO := libsyncguard.so.$(FFI_VERSION)
ffi-build: ## builds the C library for `make install`
	@if sh $(FFI_ROOT)/needs-rust.sh "$$($(CARGO) --version 2>/dev/null)" "$$($${RUSTC:-rustc} --version 2>/dev/null)"; then \
	  cd $(FFI_ROOT) && $(CARGO) build -p syncguard-ffi --lib --profile $(PROFILE) --target-dir $(call ffi_quote,$(CARGO_TARGET_DIR)) $(FFI_CARGO_FLAGS) && \
	  $(CARGO) build -p syncguard-cli --profile $(PROFILE) --target-dir $(call ffi_quote,$(CARGO_TARGET_DIR)); \
	elif ! test -f $(FFI_BUILT)/libsyncguard.so; then \
	  echo "nothing is built yet: run 'make ffi-build' as a user that has this Rust, then this" >&2; exit 1; \
	else \
	  echo "going on with what was built before" >&2; \
	fi
	mkdir -p $(FFI_STAGE)
	rm -rf $(FFI_STAGE)/*
	mkdir -p $(FFI_STAGE)/man
	$(FFI_BUILT)/syncguard man $(FFI_STAGE)/man
	$(FFI_BUILT)/syncguard completions bash > $(FFI_STAGE)/syncguard.bash
	$(FFI_BUILT)/syncguard completions zsh > $(FFI_STAGE)/_syncguard
	$(FFI_BUILT)/syncguard completions fish > $(FFI_STAGE)/syncguard.fish
	$(STRIP) -o $(FFI_STAGE)/syncguard $(FFI_BUILT)/syncguard
	$(OBJCOPY) --only-keep-debug $(FFI_BUILT)/libsyncguard.so $(FFI_STAGE)/$(FFI_SO).debug
	$(STRIP) --strip-unneeded -o $(FFI_STAGE)/$(FFI_SO) $(FFI_BUILT)/libsyncguard.so
	cd $(FFI_STAGE) && $(OBJCOPY) --add-gnu-debuglink=$(FFI_SO).debug $(FFI_SO)
	$(LD) -r --whole-archive $(FFI_BUILT)/libsyncguard.a -o $(FFI_STAGE)/syncguard.o
	$(OBJCOPY) --wildcard --keep-global-symbol='syncguard_*' --remove-section=.llvmbc --remove-section=.llvmcmd $(FFI_STAGE)/syncguard.o
	$(STRIP) --strip-debug $(FFI_STAGE)/syncguard.o
	$(AR) rcs $(FFI_STAGE)/libsyncguard.a $(FFI_STAGE)/syncguard.o
	rm -f $(FFI_STAGE)/syncguard.o
	for file in syncguard.pc syncguard-static.pc syncguardConfig.cmake syncguardConfigVersion.cmake; do \
	  sed $(call ffi_put,PREFIX,$(call ffi_pc,$(PREFIX))) $(call ffi_put,LIBDIR,$(call ffi_pc,$(LIBDIR))) \
	      $(call ffi_put,PC_INCLUDEDIR,$(call ffi_pc,$(INCLUDEDIR))) $(call ffi_put,INCLUDEDIR,$(INCLUDEDIR)) \
	      $(call ffi_put,VERSION,$(FFI_VERSION)) $(call ffi_put,SOVERSION,$(FFI_SOVERSION)) \
	      $(call ffi_put,LIBS_PRIVATE,$(FFI_LIBS_PRIVATE)) \
	      $(call ffi_put,LIBS_LIST,$(subst $(FFI_SPACE),;,$(FFI_LIBS_PRIVATE))) \
	      $(FFI_ROOT)/ffi/pkg/$$file.in > $(FFI_STAGE)/$$file || exit 1; \
	done

install: ffi-build ## installs the C library and the command under PREFIX (/usr/local)
	install -d $(FFI_TO_BIN) $(addprefix $(FFI_TO_DATA)/,man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(FFI_STAGE)/syncguard $(FFI_TO_BIN)/
	install -m 644 $(FFI_STAGE)/man/*.1 $(FFI_TO_DATA)/man/man1/
	install -m 644 $(FFI_STAGE)/syncguard.bash $(FFI_TO_DATA)/bash-completion/completions/syncguard
	install -m 644 $(FFI_STAGE)/_syncguard $(FFI_TO_DATA)/zsh/site-functions/
	install -m 644 $(FFI_STAGE)/syncguard.fish $(FFI_TO_DATA)/fish/vendor_completions.d/
	install -d $(FFI_TO_LIB)/.debug $(FFI_TO_LIB)/pkgconfig $(FFI_TO_LIB)/cmake/syncguard $(FFI_TO_INCLUDE)
	install -m 755 $(FFI_STAGE)/$(FFI_SO) $(FFI_TO_LIB)/
	install -m 644 $(FFI_STAGE)/$(FFI_SO).debug $(FFI_TO_LIB)/.debug/
	ln -sf $(FFI_SO) $(FFI_TO_LIB)/libsyncguard.so.$(FFI_SOVERSION)
	ln -sf libsyncguard.so.$(FFI_SOVERSION) $(FFI_TO_LIB)/libsyncguard.so
	install -m 644 $(FFI_STAGE)/libsyncguard.a $(FFI_TO_LIB)/
	install -m 644 $(FFI_ROOT)/include/syncguard.h $(FFI_ROOT)/include/syncguard.hpp $(FFI_TO_INCLUDE)/
	install -m 644 $(FFI_STAGE)/syncguard.pc $(FFI_STAGE)/syncguard-static.pc $(FFI_TO_LIB)/pkgconfig/
	install -m 644 $(FFI_STAGE)/syncguardConfig.cmake $(FFI_STAGE)/syncguardConfigVersion.cmake $(FFI_TO_LIB)/cmake/syncguard/

# What `install` of this version has put there, and the directories that are the library's own.
uninstall: ## removes what `make install` put under PREFIX
	rm -f $(addprefix $(FFI_TO_LIB)/,$(FFI_SO) libsyncguard.so.$(FFI_SOVERSION) libsyncguard.so libsyncguard.a .debug/$(FFI_SO).debug \
	  pkgconfig/syncguard.pc pkgconfig/syncguard-static.pc cmake/syncguard/syncguardConfig.cmake cmake/syncguard/syncguardConfigVersion.cmake)
	rm -f $(addprefix $(FFI_TO_INCLUDE)/,syncguard.h syncguard.hpp)
	rm -f $(FFI_TO_BIN)/syncguard $(FFI_TO_DATA)/man/man1/syncguard.1 $(FFI_TO_DATA)/man/man1/syncguard-*.1
	rm -f $(addprefix $(FFI_TO_DATA)/,bash-completion/completions/syncguard zsh/site-functions/_syncguard fish/vendor_completions.d/syncguard.fish)
	for dir in $(FFI_TO_LIB)/cmake/syncguard $(FFI_TO_LIB)/.debug; do \
	  if [ -d "$$dir" ] && [ -z "$$(ls -A "$$dir")" ]; then rmdir "$$dir" || exit 1; fi; done

//! The terminal that this program was started at: which process group has it, and giving it to another one.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal, if there is one: stdin can be another terminal, or a file.
pub struct Terminal {
    file: Option<File>,
}

impl Terminal {
    pub fn open() -> Self {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty");
        Self { file: file.ok() }
    }

    pub fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the group has the terminal now. It changes whenever a shell puts a job into the foreground or background.
    pub fn is_of(&self, group: Pid) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| tcgetpgrp(file) == Ok(group))
    }

    /// Whether the group of this program has the terminal now.
    pub fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Gives the terminal to a group. The kernel stops a background process that does so unless it blocks SIGTTOU.
    pub fn give(&self, group: Pid) -> bool {
        let Some(file) = &self.file else {
            return false;
        };
        let mut set = SigSet::empty();
        set.add(Signal::SIGTTOU);
        let _ = set.thread_block();
        let given = tcsetpgrp(file, group).is_ok();
        let _ = set.thread_unblock();
        given
    }
}

/// Whether a command is to have the terminal from the beginning. In a pipeline another program of this group may need it: then the
/// command gets it when it asks.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

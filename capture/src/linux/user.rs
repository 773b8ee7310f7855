//! Giving up rights: what is armed stays armed, and the rest needs none.

use std::fs;
use std::io;
use std::os::unix::fs::fchown;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::sys;
use crate::{CaptureError, TapeFiles, Warning};

/// Number of the user, and of the group, that own nothing.
const NOBODY: u32 = 65_534;

/// The user as whom a recording goes on once everything is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    user: u32,
    group: u32,
    /// How it was chosen.
    choice: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Named by the caller.
    Named,
    /// Who called `sudo`.
    Invoker,
    /// Nobody else is known.
    Nobody,
    /// Already an ordinary user.
    Same,
}

impl User {
    /// The user of this name or number. Without one: who called `sudo`, else nobody; and an ordinary user
    /// stays the same, without capabilities.
    ///
    /// # Errors
    /// When there is no such user, or this process is another's and may not become it.
    pub fn choose(name: Option<&str>) -> Result<User, CaptureError> {
        let (own, group) = (geteuid().as_raw(), getegid().as_raw());
        let user = match name {
            Some(name) => named(name)?,
            None if own == 0 => invoker(),
            None => User {
                user: own,
                group,
                choice: Choice::Same,
            },
        };
        if own != 0 && user.user != own {
            return Err(CaptureError::NotRoot {
                user: name.unwrap_or_default().to_owned(),
            });
        }
        Ok(user)
    }

    /// Makes all threads of this process run as this user, with no capabilities and no way to gain any.
    /// Call it while there is only one thread: capabilities are each thread's own.
    ///
    /// The tape, if there is one, is given to a user who was named or called `sudo`. Nobody is given only the
    /// first of segments, as the others will be nobody's: the open file of a single tape is enough. Where the user could not make further segments, those who were not named leave
    /// everything as it is, which the warning says.
    ///
    /// # Errors
    /// When the user cannot make segments, or the system refuses.
    pub fn take_over(&self, files: Option<&TapeFiles>) -> Result<Option<Warning>, CaptureError> {
        if self.user == 0 {
            return Ok(None);
        }
        if let Some(folder) = files.and_then(TapeFiles::folder_of_segments)
            && !self.may_write(folder)
        {
            let (folder, user) = (folder.to_owned(), self.user);
            return match self.choice {
                Choice::Named | Choice::Same => Err(CaptureError::ClosedFolder { folder, user }),
                Choice::Invoker | Choice::Nobody => Ok(Some(Warning::StaysRoot { folder, user })),
            };
        }
        self.own(files)
            .and_then(|()| self.give_up())
            .map_err(|source| CaptureError::System {
                action: format!("going on as user {}", self.user),
                source,
            })?;
        Ok(None)
    }

    fn own(&self, files: Option<&TapeFiles>) -> io::Result<()> {
        // In a sticky folder only a segment's owner may remove it.
        let segmented = files.is_some_and(|files| files.folder_of_segments().is_some());
        match self.choice {
            Choice::Same => return Ok(()),
            Choice::Nobody if !segmented => return Ok(()),
            _ => {}
        }
        match files.and_then(TapeFiles::file) {
            Some(file) if file.metadata()?.is_file() => {
                fchown(file, Some(self.user), Some(self.group))
            }
            _ => Ok(()),
        }
    }

    fn give_up(&self) -> io::Result<()> {
        if self.choice != Choice::Same && geteuid().is_root() {
            sys::become_user(self.user, self.group)?;
        }
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets)?;
        Ok(set_no_new_privs(true)?)
    }

    /// Whether the user may make and remove files in a folder.
    fn may_write(&self, folder: &Path) -> bool {
        let (uid, gid) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        let may = || {
            accessat(
                CWD,
                folder,
                Access::WRITE_OK | Access::EXEC_OK,
                AtFlags::EACCESS,
            )
        };
        if !geteuid().is_root() {
            return may().is_ok();
        }
        // This thread looks as the user does, and takes its rights back.
        let Ok(groups) = getgroups() else {
            return false;
        };
        let (root, group) = (Uid::ROOT, getegid());
        let seen = set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(group, gid, group))
            .and_then(|()| set_thread_res_uid(root, uid, root))
            .and_then(|()| may());
        let restored = set_thread_res_uid(root, root, root)
            .and_then(|()| set_thread_res_gid(group, group, group))
            .and_then(|()| set_thread_groups(&groups));
        seen.is_ok() && restored.is_ok()
    }
}

/// Who called `sudo`, or nobody.
fn invoker() -> User {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    match (number("SUDO_UID"), number("SUDO_GID")) {
        (Some(user @ 1..), Some(group)) => User {
            user,
            group,
            choice: Choice::Invoker,
        },
        _ => User {
            user: NOBODY,
            group: NOBODY,
            choice: Choice::Nobody,
        },
    }
}

fn named(name: &str) -> Result<User, CaptureError> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (user, group) = account(&accounts, name).ok_or_else(|| CaptureError::UnknownUser {
        name: name.to_owned(),
    })?;
    Ok(User {
        user,
        group,
        choice: Choice::Named,
    })
}

/// Numbers of a user and the user's group, by name or number.
fn account(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let find = |line: &str| {
        let mut fields = line.split(':');
        let (known, _, user) = (fields.next()?, fields.next()?, fields.next()?);
        let group = fields.next()?.parse().ok()?;
        (known == name || user == name).then_some((user.parse().ok()?, group))
    };
    accounts.lines().find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_and_by_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\n#\nmail:x:8:12:mail:/var/mail:/bin/false\n";
        assert_eq!(account(accounts, "mail"), Some((8, 12)));
        assert_eq!(account(accounts, "8"), Some((8, 12)));
        assert_eq!(account(accounts, "root"), Some((0, 0)));
        assert_eq!(account(accounts, "mai"), None);
        assert_eq!(account(accounts, ""), None);
    }

    #[test]
    fn what_a_user_may_write_is_found_out_and_rights_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let nobody = User {
            user: NOBODY,
            group: NOBODY,
            choice: Choice::Nobody,
        };
        if !geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        assert!(!nobody.may_write(folder.path()));
        assert!(nobody.may_write(Path::new("/var/tmp")));
        assert!(geteuid().is_root());
        fs::write(folder.path().join("root's"), "").unwrap();
    }
}

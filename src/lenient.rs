//! Reading and copying files that the device may fail to read in places.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{self, Disk, DiskFile, read_exact_at};
use crate::error::{Error, Result};

/// Where damaged files are set aside, inside of the store's directory.
pub(crate) const DAMAGED_DIR: &str = "damaged";

/// What a device reads or fails to read as one.
const SECTOR: usize = 512;

const PIECE: usize = 256 << 10;

/// Reads into `buffer`; where that fails, zeros are left. Whether it failed nowhere.
pub(crate) fn read_what_can_be(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> bool {
    if read_exact_at(file, buffer, offset).is_ok() {
        return true;
    }
    for (number, sector) in buffer.chunks_mut(SECTOR).enumerate() {
        if read_exact_at(file, sector, offset + (number * SECTOR) as u64).is_err() {
            sector.fill(0);
        }
    }
    false
}

/// Copies a file into the directory of damaged ones, durably, and says where it is; `None` if there is
/// no such file. Nothing that lies there is changed: a copy that was made before is taken for this one
/// if it is the same, and stays beside it if not.
pub(crate) fn set_aside(disk: &dyn Disk, dir: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path, error)),
    };
    let damaged = dir.join(DAMAGED_DIR);
    disk.create_dir(&damaged).map_err(|error| Error::io(&damaged, error))?;
    let there = disk.list(&damaged).map_err(|error| Error::io(&damaged, error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 1_u64.. {
        let target = damaged.join(if number == 1 { name.clone() } else { format!("{name}.{number}") });
        let failed = |error| Error::io(&target, error);
        if there.contains(&target) {
            if is_copy(&*file, &*disk.open(&target).map_err(failed)?).map_err(failed)? {
                return Ok(Some(target));
            }
            continue;
        }
        let copy = disk.create(&target).map_err(failed)?;
        let copied = pieces(&*file, |bytes, offset| disk::write_all_at(&*copy, bytes, offset).map(|()| true));
        let copied = copied.and_then(|_| disk::sync(&*copy)).and_then(|()| disk.sync_dir(&damaged));
        if copied.is_err() {
            // Half a copy would keep the room that may be missing.
            let _ = disk.remove(&target);
        }
        copied.map_err(failed)?;
        return Ok(Some(target));
    }
    Ok(None)
}

/// Leaves a text beside the damaged files, durably.
pub(crate) fn write_report(disk: &dyn Disk, dir: &Path, text: &str) -> Result<()> {
    let damaged = dir.join(DAMAGED_DIR);
    disk.create_dir(&damaged).map_err(|error| Error::io(&damaged, error))?;
    let there = disk.list(&damaged).map_err(|error| Error::io(&damaged, error))?;
    let names = (1_u64..).map(|number| damaged.join(format!("report.{number}")));
    let Some(path) = names.into_iter().find(|path| !there.contains(path)) else { return Ok(()) };
    let file = disk.create(&path).map_err(|error| Error::io(&path, error))?;
    disk::write_all_at(&*file, text.as_bytes(), 0)
        .and_then(|()| disk::sync(&*file))
        .and_then(|()| disk.sync_dir(&damaged))
        .map_err(|error| Error::io(&path, error))
}

fn is_copy(file: &dyn DiskFile, copy: &dyn DiskFile) -> io::Result<bool> {
    let same = pieces(file, |bytes, offset| {
        let mut other = vec![0; bytes.len()];
        read_what_can_be(copy, &mut other, offset);
        Ok(other == bytes)
    })?;
    Ok(same && file.len()? == copy.len()?)
}

/// Gives the file in pieces to `visit`, until that says to stop; whether it never did.
fn pieces(file: &dyn DiskFile, mut visit: impl FnMut(&[u8], u64) -> io::Result<bool>) -> io::Result<bool> {
    let (len, mut offset) = (file.len()?, 0);
    let mut buffer = vec![0; PIECE];
    while offset < len {
        let count = usize::try_from(len - offset).map_or(PIECE, |rest| rest.min(PIECE));
        read_what_can_be(file, &mut buffer[..count], offset);
        if !visit(&buffer[..count], offset)? {
            return Ok(false);
        }
        offset += count as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    #[test]
    fn a_copy_is_whole_is_made_once_and_replaces_nothing() {
        let (disk, dir) = (MemoryDisk::new(0), Path::new("d"));
        let aside = |bytes: &[u8]| {
            disk.replace("d/runs/1.run", bytes);
            set_aside(&disk, dir, Path::new("d/runs/1.run")).unwrap().unwrap()
        };
        let long = vec![7; PIECE + 1];
        assert_eq!(aside(&long), Path::new("d/damaged/1.run"));
        assert_eq!(aside(&long), Path::new("d/damaged/1.run"));
        assert_eq!(aside(b"other"), Path::new("d/damaged/1.run.2"));
        assert_eq!(aside(b"other!"), Path::new("d/damaged/1.run.3"));
        disk.crash();
        assert_eq!(disk.contents("d/damaged/1.run").unwrap(), long);
        assert_eq!(disk.contents("d/damaged/1.run.2").unwrap(), b"other");
        assert_eq!(set_aside(&disk, dir, Path::new("d/none")).unwrap(), None);
    }

    #[test]
    fn half_a_copy_does_not_keep_the_room_that_is_missing() {
        let (disk, dir, path) = (MemoryDisk::new(0), Path::new("d"), Path::new("d/runs/1.run"));
        disk.replace(path, &vec![7; 3 * PIECE]);
        disk.set_capacity(Some(5 * PIECE as u64));
        set_aside(&disk, dir, path).unwrap_err();
        assert_eq!(disk.used(), 3 * PIECE as u64);
        disk.set_capacity(Some(6 * PIECE as u64));
        assert_eq!(set_aside(&disk, dir, path).unwrap().unwrap(), Path::new("d/damaged/1.run"));
    }
}

//! The file of a backup: a magic number and the format's version, and then frames, each with its kind, number and
//! length, a checksum of these, its bytes, and a SHA-256 over all of that. The first frame says what the backup is of,
//! the last one where it ends; between them are the pieces of the state. Behind them is a SHA-256 over the beginning
//! and the digests of all frames, and nothing else: every flipped bit, every missing and every further byte is found.
//! No length is believed before its checksum holds, and no byte of a frame is used before its digest does.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::Put;

use super::contents::{BackupEnd, BackupError, BackupHeader, VERSION};
use crate::limits;

const MAGIC: [u8; 8] = *b"XCHKBKUP";
/// Bytes before the first frame.
const BEGIN: usize = 12;
/// Bytes of a frame before its own: kind, number, length, and a checksum of these.
const HEAD: usize = 1 + 4 + 4 + 4;
const DIGEST: usize = 32;
/// Rights of the file: it holds clients' data.
const RIGHTS: u32 = 0o600;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameOf {
    Header = 1,
    Piece = 2,
    End = 3,
}

fn begin() -> [u8; BEGIN] {
    let mut bytes = [0; BEGIN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

fn head(kind: FrameOf, number: u32, length: u32) -> [u8; HEAD] {
    let mut fields = Vec::with_capacity(HEAD);
    fields.put8(kind as u8).put32(number).put32(length);
    let checksum = wire::crc32c(&fields);
    fields.put32(checksum);
    let mut bytes = [0; HEAD];
    bytes.copy_from_slice(&fields);
    bytes
}

fn digest_of(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    finished(context)
}

fn finished(context: Context) -> [u8; DIGEST] {
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// A backup that is being written, under another name. Dropped before its end, it leaves nothing.
pub(super) struct BackupFile {
    path: PathBuf,
    replaces: bool,
    unfinished: Option<PathBuf>,
    file: BufWriter<File>,
    number: u32,
    whole: Context,
    /// After the first frame: where pieces begin.
    first: (u64, Context),
}

impl BackupFile {
    /// Begins a file. One of this name is replaced at the end only if that is wanted.
    pub(super) fn create(path: &Path, replaces: bool, header: &BackupHeader) -> Result<Self, BackupError> {
        if !replaces && path.symlink_metadata().is_ok() {
            return Err(BackupError::Exists { path: path.to_owned() });
        }
        let Some(name) = path.file_name() else {
            let error = io::Error::new(ErrorKind::InvalidInput, "this names no file");
            return Err(BackupError::Io { path: path.to_owned(), error });
        };
        let mut unfinished = name.to_owned();
        unfinished.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = path.with_file_name(unfinished);
        let file = OpenOptions::new().write(true).create_new(true).mode(RIGHTS).open(&unfinished);
        let file = file.map_err(BackupError::io(&unfinished))?;
        let mut whole = Context::new(&SHA256);
        whole.update(&begin());
        let mut made = BackupFile {
            path: path.to_owned(),
            replaces,
            file: BufWriter::with_capacity(1 << 20, file),
            number: 0,
            first: (0, whole.clone()),
            whole,
            unfinished: Some(unfinished),
        };
        made.file.write_all(&begin()).map_err(made.io())?;
        made.put_json(FrameOf::Header, header)?;
        let length = made.file.stream_position().map_err(made.io())?;
        made.first = (length, made.whole.clone());
        Ok(made)
    }

    /// The next piece.
    pub(super) fn piece(&mut self, piece: &[u8]) -> Result<(), BackupError> {
        self.put(FrameOf::Piece, piece)
    }

    /// The pieces begin again with the first one.
    pub(super) fn begin_again(&mut self) -> Result<(), BackupError> {
        let (length, whole) = self.first.clone();
        let cut = self.file.seek(SeekFrom::Start(length)).and_then(|_| self.file.get_ref().set_len(length));
        cut.map_err(self.io())?;
        (self.number, self.whole) = (1, whole);
        Ok(())
    }

    /// All pieces are there: makes the file durable, and gives it its name. Returns its digest.
    pub(super) fn finish(mut self, end: &BackupEnd) -> Result<[u8; DIGEST], BackupError> {
        self.put_json(FrameOf::End, end)?;
        let digest = finished(self.whole.clone());
        let written = self.file.write_all(&digest).and_then(|()| self.file.flush());
        written.and_then(|()| self.file.get_ref().sync_all()).map_err(self.io())?;
        let io = BackupError::io(&self.path);
        let Some(unfinished) = self.unfinished.clone() else { return Ok(digest) };
        // A second name is never that of a file that has come meanwhile. Some file systems have no second names.
        let is_linked = !self.replaces && std::fs::hard_link(&unfinished, &self.path).is_ok();
        if !is_linked {
            if !self.replaces && self.path.symlink_metadata().is_ok() {
                return Err(BackupError::Exists { path: self.path.clone() });
            }
            std::fs::rename(&unfinished, &self.path).map_err(&io)?;
            self.unfinished = None;
        }
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(&io)?;
        Ok(digest)
    }

    fn put_json(&mut self, kind: FrameOf, value: &impl Serialize) -> Result<(), BackupError> {
        let bytes = serde_json::to_vec(value).map_err(|error| self.io()(error.into()))?;
        self.put(kind, &bytes)
    }

    fn put(&mut self, kind: FrameOf, bytes: &[u8]) -> Result<(), BackupError> {
        let head = head(kind, self.number, bytes.len() as u32);
        let digest = digest_of(&[&head, bytes]);
        for part in [&head[..], bytes, &digest] {
            self.file.write_all(part).map_err(self.io())?;
        }
        self.whole.update(&digest);
        self.number += 1;
        Ok(())
    }

    fn io(&self) -> impl Fn(io::Error) -> BackupError + use<> {
        BackupError::io(&self.path)
    }
}

impl Drop for BackupFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = std::fs::remove_file(unfinished);
        }
    }
}

/// What is wrong with the bytes of a backup.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    Foreign,
    Version(u32),
    Corrupt { at: u64, why: String },
}

impl Fault {
    /// The error about the file of this name.
    pub(super) fn of(self, path: &Path) -> BackupError {
        let path = path.to_owned();
        match self {
            Fault::Io(error) => BackupError::Io { path, error },
            Fault::Foreign => BackupError::Foreign { path },
            Fault::Version(version) => BackupError::Version { path, version },
            Fault::Corrupt { at, why } => BackupError::Corrupt { path, at, why },
        }
    }
}

/// The next part of a backup.
#[derive(Debug)]
pub(super) enum BackupPart {
    /// The next piece of the state.
    Piece(Bytes),
    /// No piece and no byte follows; and the digest of all.
    End(BackupEnd, [u8; DIGEST]),
}

/// Reads a backup from its beginning.
pub(super) struct BackupReader<R> {
    from: R,
    at: u64,
    number: u32,
    whole: Context,
    header: BackupHeader,
    pieces: (u32, u64),
}

impl<R: Read> BackupReader<R> {
    /// Reads what the backup is of.
    pub(super) fn open(from: R) -> Result<Self, Fault> {
        let mut whole = Context::new(&SHA256);
        let group = crate::admin::BackupGroup {
            cluster: String::new(),
            replicas: 0,
            release: String::new(),
            settings: Vec::new(),
        };
        let header = BackupHeader { made_us: 0, agreed_by: 0, group };
        whole.update(&begin());
        let mut reader = BackupReader { from, at: 0, number: 0, whole, header, pieces: (0, 0) };
        let read: [u8; BEGIN] = reader.array()?;
        if read[..8] != MAGIC {
            return Err(Fault::Foreign);
        }
        let mut version = [0; 4];
        version.copy_from_slice(&read[8..]);
        match u32::from_le_bytes(version) {
            VERSION => {}
            version => return Err(Fault::Version(version)),
        }
        let (kind, bytes) = reader.frame()?;
        if kind != FrameOf::Header {
            return Err(reader.corrupt("it does not say what it is of"));
        }
        reader.header = reader.json(&bytes)?;
        Ok(reader)
    }

    /// What the backup is of.
    pub(super) fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The next part. After the end there is none.
    pub(super) fn next(&mut self) -> Result<BackupPart, Fault> {
        let (kind, bytes) = self.frame()?;
        match kind {
            FrameOf::Header => Err(self.corrupt("it begins again")),
            FrameOf::Piece => {
                self.pieces = (self.pieces.0 + 1, self.pieces.1 + bytes.len() as u64);
                Ok(BackupPart::Piece(bytes))
            }
            FrameOf::End => {
                let end: BackupEnd = self.json(&bytes)?;
                let digest = finished(self.whole.clone());
                if self.array()? != digest {
                    return Err(self.corrupt("its digest is not that of its bytes"));
                }
                if (end.pieces, end.bytes) != self.pieces {
                    return Err(self.corrupt("it has other pieces than its end says"));
                }
                match self.from.read(&mut [0]) {
                    Ok(0) => Ok(BackupPart::End(end, digest)),
                    Ok(_) => Err(self.corrupt("bytes follow its end")),
                    Err(error) => Err(Fault::Io(error)),
                }
            }
        }
    }

    /// It is corrupt, for this reason, before the byte that is to be read next.
    pub(super) fn corrupt(&self, why: &str) -> Fault {
        Fault::Corrupt { at: self.at, why: why.to_owned() }
    }

    fn frame(&mut self) -> Result<(FrameOf, Bytes), Fault> {
        let read: [u8; HEAD] = self.array()?;
        let mut fields = wire::Reader::new(&read);
        let kind = fields.u8();
        let (number, length, checksum) = (fields.u32(), fields.u32(), fields.u32());
        let (Ok(kind), Ok(number), Ok(length), Ok(checksum)) = (kind, number, length, checksum) else {
            return Err(self.corrupt("a frame is too short"));
        };
        if wire::crc32c(&read[..HEAD - 4]) != checksum {
            return Err(self.corrupt("the head of a frame does not fit its checksum"));
        }
        let kind = match kind {
            1 => FrameOf::Header,
            2 => FrameOf::Piece,
            3 => FrameOf::End,
            _ => return Err(self.corrupt("a frame of no kind")),
        };
        if number != self.number {
            return Err(self.corrupt("a frame is missing, or in another's place"));
        }
        if length as usize > limits::TRANSFER_MESSAGE {
            return Err(self.corrupt("a frame is longer than any"));
        }
        let mut bytes = vec![0; length as usize];
        self.exactly(&mut bytes)?;
        let digest = digest_of(&[&read, &bytes]);
        if self.array()? != digest {
            return Err(self.corrupt("the bytes of a frame do not fit their digest"));
        }
        self.whole.update(&digest);
        self.number += 1;
        Ok((kind, bytes.into()))
    }

    fn json<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, Fault> {
        serde_json::from_slice(bytes).map_err(|error| self.corrupt(&error.to_string()))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.exactly(&mut bytes)?;
        Ok(bytes)
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        match self.from.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.corrupt("it ends early")),
            Err(error) => Err(Fault::Io(error)),
        }
    }
}

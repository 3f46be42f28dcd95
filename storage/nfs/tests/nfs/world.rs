//! A server, the directories that it exports, and clients.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nfs3_types::mount::{self, dirpath, mountres3, mountres3_ok};
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack, Void};
use nicache_nfs::protocol::{MOUNT, NFS, Procedure, Program};
use nicache_nfs::{
    ChunkPool, ClientRule, ExportConfig, HandleKey, Network, Original, Server, ServerConfig, Squash,
};
use nicache_payload::Payload;

pub(crate) use nfs3_types::nfs3::nfsstat3 as Stat;

/// A rule for everybody: root is root, from any port.
pub(crate) fn open_rule() -> ClientRule {
    let all: Network = "0.0.0.0/0".parse().unwrap();
    ClientRule { squash: Squash::None, needs_reserved_port: false, ..ClientRule::new(all) }
}

pub(crate) fn export(name: &str, path: &Path, rule: ClientRule) -> ExportConfig {
    ExportConfig {
        name: name.into(),
        path: path.into(),
        is_detached_root: false,
        clients: vec![rule],
        is_sync: false,
    }
}

pub(crate) fn config(exports: Vec<ExportConfig>) -> ServerConfig {
    ServerConfig {
        workers: 4,
        ..ServerConfig::new(exports, "127.0.0.1:0".parse().unwrap(), HandleKey::new([9; 32]))
    }
}

pub(crate) fn original() -> Arc<dyn Payload> {
    Arc::new(Original::new(ChunkPool::new(16 << 20)))
}

/// One export, `/export`, of a folder that goes away at the end.
pub(crate) struct World {
    pub server: Server,
    pub path: PathBuf,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(open_rule(), original())
    }

    pub(crate) fn with(rule: ClientRule, payload: Arc<dyn Payload>) -> Self {
        let folder = folder();
        let path = folder.path().join("export");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let server = Server::start(config(vec![export("/export", &path, rule)]), payload).unwrap();
        Self { server, path, folder }
    }

    /// Ends the server and starts another one on the same directory.
    pub(crate) fn restart(self, key: [u8; 32]) -> Self {
        let Self { server, path, folder } = self;
        drop(server);
        let config = ServerConfig {
            handle_key: HandleKey::new(key),
            ..config(vec![export("/export", &path, open_rule())])
        };
        Self { server: Server::start(config, original()).unwrap(), path, folder }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.server.addresses()[0])
    }

    /// A client and the export's root.
    pub(crate) fn mounted(&self) -> (Client, nfs_fh3) {
        let mut client = self.client();
        let root = client.mount("/export").unwrap();
        (client, root)
    }
}

/// A folder that everybody may look into.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("nicache-nfs-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub(crate) fn user(uid: u32, gid: u32, gids: &[u32]) -> opaque_auth<'static> {
    user_at(1, "client", uid, gid, gids)
}

/// A user at a time and on a machine.
pub(crate) fn user_at(
    stamp: u32,
    machine: &str,
    uid: u32,
    gid: u32,
    gids: &[u32],
) -> opaque_auth<'static> {
    opaque_auth::auth_unix(&auth_unix {
        stamp,
        machinename: Opaque::owned(machine.as_bytes().to_vec()),
        uid,
        gid,
        gids: gids.to_vec(),
    })
}

static XID: AtomicU32 = AtomicU32::new(1000);

pub(crate) fn next_xid() -> u32 {
    XID.fetch_add(1, Ordering::Relaxed)
}

/// A connection with a credential.
pub(crate) struct Client {
    pub stream: TcpStream,
    pub credential: opaque_auth<'static>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// From a port below 1024.
    pub(crate) fn connect_reserved(address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        for port in (600..1024).rev() {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            let own = SocketAddr::from(([127, 0, 0, 1], port));
            if bind(&socket, &own).is_ok() && connect(&socket, &address).is_ok() {
                return Self::over(TcpStream::from(socket));
            }
        }
        panic!("no reserved port is free");
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream, credential: user(0, 0, &[]) }
    }

    pub(crate) fn act_as(&mut self, uid: u32, gid: u32, gids: &[u32]) {
        self.credential = user(uid, gid, gids);
    }

    /// A call's record.
    pub(crate) fn record(
        &self,
        program: Program,
        procedure: u32,
        xid: u32,
        arguments: &[u8],
    ) -> Vec<u8> {
        record(program, procedure, xid, &self.credential, arguments)
    }

    pub(crate) fn send(&mut self, record: &[u8]) {
        let mut out = (0x8000_0000 | record.len() as u32).to_be_bytes().to_vec();
        out.extend_from_slice(record);
        self.stream.write_all(&out).unwrap();
    }

    /// A reply's record; `None` if the server has ended the connection.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        match self.stream.read_exact(&mut mark) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no reply within a minute")
            }
            Err(_) => return None,
        }
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0, "replies have one fragment");
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut reply).unwrap();
        Some(reply)
    }

    /// The results of the reply to call `xid`, which comes next.
    pub(crate) fn results(&mut self, xid: u32) -> Vec<u8> {
        self.results_of([xid]).remove(0)
    }

    /// The results of the replies to these calls, in the calls' order. They come next, in any
    /// order: calls of one connection run side by side.
    pub(crate) fn results_of<const N: usize>(&mut self, calls: [u32; N]) -> Vec<Vec<u8>> {
        let mut results = vec![None; N];
        for _ in 0..N {
            let reply = self.receive().expect("a reply");
            let words: Vec<u32> = reply[..24]
                .chunks(4)
                .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
                .collect();
            let call = (0..N).find(|i| calls[*i] == words[0] && results[*i].is_none());
            assert_eq!(
                words[1..],
                [1, 0, 0, 0, 0],
                "an accepted reply to one of the calls {calls:?}"
            );
            results
                [call.unwrap_or_else(|| panic!("{} is none of the calls {calls:?}", words[0]))] =
                Some(reply[24..].to_vec());
        }
        results.into_iter().flatten().collect()
    }

    pub(crate) fn call_program<A: Pack, R: Unpack>(
        &mut self,
        program: Program,
        procedure: u32,
        arguments: &A,
    ) -> R {
        let xid = next_xid();
        let record = self.record(program, procedure, xid, &packed(arguments));
        self.send(&record);
        let results = self.results(xid);
        let (value, used) = R::unpack(&mut &results[..]).expect("results that can be decoded");
        assert_eq!(used, results.len(), "no bytes behind the results");
        value
    }

    pub(crate) fn call<A: Pack, R: Unpack>(&mut self, procedure: Procedure, arguments: &A) -> R {
        self.call_program(NFS, procedure as u32, arguments)
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<nfs_fh3, u32> {
        let path = dirpath(Opaque::owned(path.as_bytes().to_vec()));
        match self.call_program::<_, mountres3<'_>>(
            MOUNT,
            mount::MOUNT_PROGRAM::MOUNTPROC3_MNT as u32,
            &path,
        ) {
            mountres3::Ok(mountres3_ok { fhandle, auth_flavors }) => {
                assert_eq!(auth_flavors, [1]);
                Ok(nfs_fh3 { data: Opaque::owned(fhandle.0.to_vec()) })
            }
            mountres3::Err(status) => Err(status as u32),
        }
    }

    pub(crate) fn null(&mut self) {
        self.call::<_, Void>(Procedure::Null, &Void);
    }

    pub(crate) fn getattr(&mut self, object: &nfs_fh3) -> Result<fattr3, Stat> {
        let reply: GETATTR3res =
            self.call(Procedure::GetAttr, &GETATTR3args { object: object.clone() });
        result(reply).map(|ok| ok.obj_attributes)
    }

    pub(crate) fn setattr(
        &mut self,
        object: &nfs_fh3,
        new_attributes: sattr3,
        guard: sattrguard3,
    ) -> Result<wcc_data, Stat> {
        let arguments = SETATTR3args { object: object.clone(), new_attributes, guard };
        let reply: SETATTR3res = self.call(Procedure::SetAttr, &arguments);
        result(reply).map(|ok| ok.obj_wcc)
    }

    pub(crate) fn lookup(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
    ) -> Result<nfs_fh3, Stat> {
        let reply: LOOKUP3res =
            self.call(Procedure::Lookup, &LOOKUP3args { what: place(directory, name) });
        let ok = result(reply)?;
        assert!(ok.obj_attributes.is_some() && ok.dir_attributes.is_some());
        Ok(ok.object)
    }

    pub(crate) fn access(&mut self, object: &nfs_fh3, access: u32) -> Result<u32, Stat> {
        let reply: ACCESS3res =
            self.call(Procedure::Access, &ACCESS3args { object: object.clone(), access });
        result(reply).map(|ok| ok.access)
    }

    pub(crate) fn readlink(&mut self, symlink: &nfs_fh3) -> Result<Vec<u8>, Stat> {
        let reply: READLINK3res<'static> =
            self.call(Procedure::ReadLink, &READLINK3args { symlink: symlink.clone() });
        result(reply).map(|ok| ok.data.0.to_vec())
    }

    pub(crate) fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Stat> {
        let arguments = READ3args { file: file.clone(), offset, count };
        let reply: READ3res<'static> = self.call(Procedure::Read, &arguments);
        let ok = result(reply)?;
        assert_eq!(ok.count as usize, ok.data.len());
        assert!(ok.file_attributes.is_some());
        Ok((ok.data.to_vec(), ok.eof))
    }

    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, Stat> {
        let arguments = WRITE3args {
            file: file.clone(),
            offset,
            count: data.len() as u32,
            stable,
            data: Opaque::borrowed(data),
        };
        let reply: WRITE3res = self.call(Procedure::Write, &arguments);
        let ok = result(reply)?;
        assert_eq!(ok.count as usize, data.len());
        assert!(ok.committed as u32 >= stable as u32);
        Ok(ok)
    }

    pub(crate) fn commit(&mut self, file: &nfs_fh3) -> Result<COMMIT3resok, Stat> {
        let reply: COMMIT3res =
            self.call(Procedure::Commit, &COMMIT3args { file: file.clone(), offset: 0, count: 0 });
        result(reply)
    }

    pub(crate) fn create(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
        how: createhow3,
    ) -> Result<nfs_fh3, Stat> {
        let reply: CREATE3res =
            self.call(Procedure::Create, &CREATE3args { where_: place(directory, name), how });
        let ok = result(reply)?;
        assert!(ok.obj_attributes.is_some());
        Ok(ok.obj.unwrap())
    }

    /// A file with mode 0644 that is not there yet.
    pub(crate) fn make_file(&mut self, directory: &nfs_fh3, name: impl AsRef<[u8]>) -> nfs_fh3 {
        self.create(directory, name, createhow3::GUARDED(mode(0o644))).unwrap()
    }

    pub(crate) fn mkdir(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
        attributes: sattr3,
    ) -> Result<nfs_fh3, Stat> {
        let reply: MKDIR3res =
            self.call(Procedure::MkDir, &MKDIR3args { where_: place(directory, name), attributes });
        Ok(result(reply)?.obj.unwrap())
    }

    pub(crate) fn symlink(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
        text: &[u8],
    ) -> Result<nfs_fh3, Stat> {
        let symlink = symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(text)),
        };
        let reply: SYMLINK3res = self
            .call(Procedure::SymLink, &SYMLINK3args { where_: place(directory, name), symlink });
        Ok(result(reply)?.obj.unwrap())
    }

    pub(crate) fn mknod(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
        what: mknoddata3,
    ) -> Result<nfs_fh3, Stat> {
        let reply: MKNOD3res =
            self.call(Procedure::MkNod, &MKNOD3args { where_: place(directory, name), what });
        Ok(result(reply)?.obj.unwrap())
    }

    pub(crate) fn remove(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
    ) -> Result<wcc_data, Stat> {
        let reply: REMOVE3res =
            self.call(Procedure::Remove, &REMOVE3args { object: place(directory, name) });
        result(reply).map(|ok| ok.dir_wcc)
    }

    pub(crate) fn rmdir(
        &mut self,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
    ) -> Result<wcc_data, Stat> {
        let reply: RMDIR3res =
            self.call(Procedure::RmDir, &RMDIR3args { object: place(directory, name) });
        result(reply).map(|ok| ok.dir_wcc)
    }

    pub(crate) fn rename(
        &mut self,
        from: (&nfs_fh3, &[u8]),
        to: (&nfs_fh3, &[u8]),
    ) -> Result<(), Stat> {
        let reply: RENAME3res = self.call(
            Procedure::Rename,
            &RENAME3args { from: place(from.0, from.1), to: place(to.0, to.1) },
        );
        result(reply).map(|_| ())
    }

    pub(crate) fn link(
        &mut self,
        file: &nfs_fh3,
        directory: &nfs_fh3,
        name: impl AsRef<[u8]>,
    ) -> Result<(), Stat> {
        let reply: LINK3res = self
            .call(Procedure::Link, &LINK3args { file: file.clone(), link: place(directory, name) });
        result(reply).map(|_| ())
    }

    pub(crate) fn readdir(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        cookieverf: cookieverf3,
        count: u32,
    ) -> Result<READDIR3resok<'static>, Stat> {
        let arguments = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
        let reply: READDIR3res<'static> = self.call(Procedure::ReadDir, &arguments);
        result(reply)
    }

    pub(crate) fn readdirplus(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        cookieverf: cookieverf3,
        dircount: u32,
        maxcount: u32,
    ) -> Result<READDIRPLUS3resok<'static>, Stat> {
        let arguments =
            READDIRPLUS3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        let reply: READDIRPLUS3res<'static> = self.call(Procedure::ReadDirPlus, &arguments);
        result(reply)
    }

    /// All names but `.` and `..`, by READDIR.
    pub(crate) fn names(&mut self, dir: &nfs_fh3) -> Result<Vec<Vec<u8>>, Stat> {
        let (mut cookie, mut verifier, mut names) = (0, cookieverf3::default(), Vec::new());
        loop {
            let page = self.readdir(dir, cookie, verifier, 4096)?;
            verifier = page.cookieverf;
            for entry in page.reply.entries.into_inner() {
                cookie = entry.cookie;
                names.push(entry.name.0.to_vec());
            }
            if page.reply.eof {
                names.retain(|name| name != b"." && name != b"..");
                return Ok(names);
            }
        }
    }
}

pub(crate) fn record(
    program: Program,
    procedure: u32,
    xid: u32,
    credential: &opaque_auth<'_>,
    arguments: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [xid, 0, 2, program.number, program.version, procedure] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&packed(credential));
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(arguments);
    out
}

pub(crate) fn packed(value: &impl Pack) -> Vec<u8> {
    let mut out = Vec::new();
    value.pack(&mut out).unwrap();
    out
}

pub(crate) fn result<T, E>(reply: Nfs3Result<T, E>) -> Result<T, Stat> {
    match reply {
        Nfs3Result::Ok(ok) => Ok(ok),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub(crate) fn place(directory: &nfs_fh3, name: impl AsRef<[u8]>) -> diropargs3<'static> {
    diropargs3 { dir: directory.clone(), name: name.as_ref().to_vec().into() }
}

pub(crate) fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

pub(crate) fn size(size: u64) -> sattr3 {
    sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() }
}

/// Waits until something is so, because another thread makes it so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("within a minute: {what}");
}

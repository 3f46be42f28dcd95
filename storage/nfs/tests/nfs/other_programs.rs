//! MOUNT, the port mapper, and an NFS client library that was written by others.

use std::net::UdpSocket;

use nfs3_types::mount::{self, dirpath, exports, mountlist};
use nfs3_types::portmap::{self, mapping, pmaplist};
use nfs3_types::xdr_codec::{Opaque, Unpack, Void};
use nicache_nfs::protocol::{MOUNT, NFS, PORTMAP};
use nicache_nfs::{Server, ServerConfig};
use rustix::io::{read, retry_on_intr};

use crate::world::*;

#[test]
fn mounts_are_told_and_forgotten() {
    let world = World::new();
    std::fs::create_dir_all(world.path.join("a/b")).unwrap();
    let mut client = world.client();
    let root = client.mount("/export").unwrap();
    assert_eq!(client.mount("/export/").unwrap(), root);
    let below = client.mount("/export/a/b").unwrap();
    let a = client.lookup(&root, "a").unwrap();
    assert_eq!(client.lookup(&a, "b").unwrap(), below);
    for (path, status) in [
        ("/exports", 2),
        ("/", 2),
        ("", 2),
        ("/export/none", 2),
        ("/export/../etc", 2),
        ("/export/a/../../..", 18),
    ] {
        let found = client.mount(path).unwrap_err();
        assert!(found == status || found == 10006, "{path}: {found}");
    }
    let path = |path: &str| dirpath(Opaque::owned(path.as_bytes().to_vec()));
    let dump = |client: &mut Client| {
        client.call_program::<_, mountlist<'_, '_>>(MOUNT, 2, &Void).into_inner().len()
    };
    assert_eq!(dump(&mut client), 3);
    client.call_program::<_, Void>(
        MOUNT,
        mount::MOUNT_PROGRAM::MOUNTPROC3_UMNT as u32,
        &path("/export/"),
    );
    assert_eq!(dump(&mut client), 2);
    client.call_program::<_, Void>(MOUNT, 4, &Void);
    assert_eq!(dump(&mut client), 0);
    let list: exports<'_, '_> = client.call_program(MOUNT, 5, &Void);
    let list = list.into_inner();
    assert_eq!(&list[0].ex_dir.0[..], b"/export");
    assert_eq!(&list[0].ex_groups.0[0].0[..], b"0.0.0.0/0");
    // It is a courtesy with a bound.
    for i in 0..1100 {
        std::fs::create_dir(world.path.join(format!("{i}"))).unwrap();
        client.mount(&format!("/export/{i}")).unwrap();
    }
    assert_eq!(dump(&mut client), 1024);
}

#[test]
fn a_directory_that_the_caller_cannot_reach_is_not_mounted() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::create_dir_all(world.path.join("private/d")).unwrap();
    std::fs::set_permissions(world.path.join("private"), std::fs::Permissions::from_mode(0o700))
        .unwrap();
    let mut client = world.client();
    client.mount("/export/private/d").unwrap();
    client.act_as(1000, 1000, &[]);
    assert_eq!(client.mount("/export/private/d"), Err(13));
}

#[test]
fn the_port_mapper_tells_the_ports() {
    let folder = folder();
    let any = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig {
        listen: vec![any, any, any],
        listen_portmap_udp: Some(any),
        ..config(vec![export("/export", folder.path(), open_rule())])
    };
    let server = Server::start(config, original()).unwrap();
    let ports: Vec<u32> = server.addresses().iter().map(|address| address.port().into()).collect();
    let mut client = Client::connect(server.addresses()[2]);
    let getport = |prog, vers, prot| mapping { prog, vers, prot, port: 0 };
    let mut ask = |what| client.call_program::<_, u32>(PORTMAP, 3, &what);
    assert_eq!(ask(getport(NFS.number, 3, 6)), ports[0]);
    assert_eq!(ask(getport(MOUNT.number, 3, 6)), ports[1]);
    assert_eq!(
        ask(getport(MOUNT.number, 1, 6)),
        ports[1],
        "the program itself says which versions it has"
    );
    assert_eq!(ask(getport(NFS.number, 3, 17)), 0);
    assert_eq!(ask(getport(100_021, 4, 6)), 0, "no locks");
    let list: pmaplist = client.call_program(PORTMAP, 4, &Void);
    assert_eq!(list.into_inner().len(), 4);
    assert!(
        !client.call_program::<_, bool>(PORTMAP, 1, &getport(1, 1, 6)),
        "nobody registers anything"
    );
    // By datagrams, and nothing but the port mapper.
    let udp = server
        .mappings()
        .iter()
        .find(|mapping| mapping.protocol == portmap::IPPROTO_UDP)
        .unwrap()
        .port;
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(("127.0.0.1", udp)).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut buffer = [0; 512];
    for (program, procedure, arguments, expected) in [
        (PORTMAP, 3, packed(&getport(NFS.number, 3, 6)), vec![0, ports[0]]),
        (NFS, 0, vec![], vec![1]),
        (MOUNT, 5, vec![], vec![1]),
    ] {
        socket.send(&client.record(program, procedure, 7, &arguments)).unwrap();
        let len = retry_on_intr(|| read(&socket, &mut buffer)).unwrap();
        let words: Vec<u32> =
            buffer[..len].chunks(4).map(|word| u32::unpack(&mut &word[..]).unwrap().0).collect();
        assert_eq!(words[..5], [7, 1, 0, 0, 0]);
        assert_eq!(words[5..], expected);
    }
    // Noise gets no answer, and the next one does.
    socket.send(&[1, 2, 3]).unwrap();
    socket.send(&client.record(PORTMAP, 0, 8, &[])).unwrap();
    assert_eq!(retry_on_intr(|| read(&socket, &mut buffer)), Ok(24));
}

/// A port mapper of the system's has the same interface as ours, but for what it lets one register:
/// the registration is refused here, and the error says so.
#[test]
fn a_registration_that_is_refused_is_an_error() {
    let world = World::new();
    let error =
        nicache_nfs::portmap::register(world.server.addresses()[0], world.server.mappings())
            .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_client_library() {
    use nfs3_client::Nfs3ConnectionBuilder;
    use nfs3_client::tokio::TokioConnector;
    use nfs3_types::nfs3::*;
    let world = World::new();
    std::fs::write(world.path.join("f"), "content").unwrap();
    let port = world.server.addresses()[0].port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let mut connection = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/export")
            .mount_port(port)
            .nfs3_port(port)
            .credential(user(0, 0, &[]))
            .mount()
            .await
            .unwrap();
        let root = connection.root_nfs_fh3();
        let found =
            connection.lookup(&LOOKUP3args { what: place(&root, "f") }).await.unwrap().unwrap();
        let read = connection
            .read(&READ3args { file: found.object, offset: 0, count: 100 })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&read.data[..], b"content");
        connection.unmount().await.unwrap();
    });
}

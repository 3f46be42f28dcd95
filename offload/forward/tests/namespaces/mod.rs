//! Network namespaces of threads, which vanish with them, and what runs in them.

#![allow(dead_code)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// A namespace: a thread that is in it and runs what it is given. Sockets and processes made there stay in it.
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// `None`, with the reason printed: this machine makes none for us.
    pub fn new() -> Option<Namespace> {
        let (jobs, inbox) = channel::<Job>();
        let (started, start) = channel();
        let thread = std::thread::spawn(move || {
            // Sound: only `UnshareFlags::FILES` is not.
            #[allow(deprecated)]
            let result = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
            started.send(result).unwrap();
            inbox.iter().for_each(|job| job());
        });
        match start.recv().unwrap() {
            Ok(()) => {}
            Err(error) => {
                println!("skipped: no network namespace: {error}");
                return None;
            }
        }
        let namespace = Namespace { jobs: Some(jobs), thread: Some(thread) };
        namespace.ip("link set lo up");
        Some(namespace)
    }

    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = channel();
        let job = Box::new(move || drop(done.send(job())));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        result.recv().expect("the job panicked")
    }

    pub fn output(&self, command: &str) -> Output {
        let command = command.to_owned();
        self.run(move || {
            let mut words = command.split_whitespace();
            Command::new(words.next().unwrap())
                .args(words)
                .output()
                .unwrap_or_else(|error| panic!("{command}: {error}"))
        })
    }

    pub fn ip(&self, arguments: &str) {
        let output = self.output(&format!("ip {arguments}"));
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// Gives this namespace an interface `name`, up, whose other end is `end` in the namespace `middle`, with no address.
    pub fn veth(&self, name: &str, middle: &Namespace, end: &str) {
        let thread = self.run(rustix::thread::gettid);
        middle.ip(&format!("link add {end} type veth peer name {name} netns {}", thread.as_raw_nonzero()));
        middle.ip(&format!("link set {end} addrgenmode none up"));
        self.ip(&format!("link set {name} up"));
    }

    pub fn start(&self, program: &str, arguments: &[&str]) -> Process {
        let (program, arguments) =
            (program.to_owned(), arguments.iter().map(std::string::ToString::to_string).collect::<Vec<_>>());
        Process(self.run(move || {
            Command::new(&program)
                .args(arguments)
                .stdin(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}"))
        }))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A process that ends with the test.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // nginx ends its workers when it is asked to end.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// An nginx that says its name and who asks, and has a file.
pub fn nginx(namespace: &Namespace, folder: &Path, name: &str, listen: &str) -> Process {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let at = folder.display();
    let configuration = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; user root;
         events {{ worker_connections 256; }}
         http {{ access_log off; sendfile on; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;
           uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; default_type text/plain;
           server {{ listen {listen}; location /who {{ return 200 '{name} $remote_addr'; }} location / {{ root {at}/..; }} }} }}"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
    let (conf, log) = (folder.join("nginx.conf"), folder.join("error.log"));
    namespace.start("nginx", &["-c", conf.to_str().unwrap(), "-e", log.to_str().unwrap()])
}

//! A replica that runs another build of the program is kept out of the group, although the version is the same.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crosscheck");
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica of the group, and what it says.
struct Replica {
    child: Child,
    admin: PathBuf,
    log: PathBuf,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Replica {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn ask(&self, command: &str) -> String {
        let answer =
            Command::new(PROGRAM).arg(command).arg("--admin").arg(&self.admin).arg("--json").output();
        String::from_utf8(answer.expect("an answer").stdout).expect("text")
    }
}

/// Starts replica `number`, from 1, of three as `program`.
fn start(folder: &Path, program: &Path, number: usize, addresses: &[(SocketAddr, SocketAddr); 3]) -> Replica {
    let path = |name: &str| folder.join(format!("{name}-{number}"));
    let (admin, log, file) = (path("admin.sock"), path("log"), path("node.toml"));
    let mut text = format!(
        "this_replica = {number}\nlisten = \"{}\"\nadmin = \"{}\"\ngroup_key = \"{}\"\nmode = \"RDGX\"\n\
         workers = 1\nmemory_limit_mb = 16\n",
        addresses[number - 1].0,
        admin.display(),
        folder.join("group.key").display()
    );
    for (other, (_, peers)) in (1..).zip(addresses) {
        text += &format!("[[replica]]\nnumber = {other}\naddress = \"{peers}\"\n");
    }
    fs::write(&file, text).expect("written");
    let output = fs::File::create(&log).expect("a log");
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(file).stderr(output).stdout(Stdio::null());
    Replica { child: command.spawn().expect("it starts"), admin, log }
}

fn wait(what: &str, replicas: &[Replica], mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        let said: Vec<String> = replicas.iter().map(Replica::said).collect();
        assert!(Instant::now() < deadline, "{what}: {said:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The program with another text in one of its replies, at a path of its own.
fn another_build(folder: &Path) -> PathBuf {
    let mut bytes = fs::read(PROGRAM).expect("the program");
    let text = b"TOUCHED\r\n";
    let places: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty(), "the reply is in the program");
    places.into_iter().for_each(|at| bytes[at + 6] = b'd');
    let path = folder.join("crosscheck-other");
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

#[test]
fn a_replica_with_one_changed_reply_is_refused_by_name_and_accused_of_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = another_build(folder.path());
    let key =
        Command::new(PROGRAM).args(["key", "new", "--out"]).arg(folder.path().join("group.key")).status();
    assert!(key.expect("it starts").success());
    let held: [[TcpListener; 2]; 3] =
        std::array::from_fn(|_| std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a port")));
    let addresses = held
        .each_ref()
        .map(|[clients, peers]| (clients.local_addr().expect("bound"), peers.local_addr().expect("bound")));
    drop(held);
    let of = |number, program: &Path| start(folder.path(), program, number, &addresses);
    let mut replicas = [1, 2, 3].map(|number| of(number, Path::new(PROGRAM)));
    let touched = || {
        let Ok(stream) = TcpStream::connect(addresses[0].0) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
        let mut lines = BufReader::new(&stream);
        let mut ask = |request: &str| {
            let mut line = String::new();
            let sent = (&stream).write_all(request.as_bytes());
            sent.and_then(|()| lines.read_line(&mut line)).map(|_| line).unwrap_or_default()
        };
        ask("set kept 0 0 1\r\nx\r\n") == "STORED\r\n" && ask("touch kept 0\r\n") == "TOUCHED\r\n"
    };
    wait("the group begins", &replicas, || {
        let mut begin = Command::new(PROGRAM);
        begin.args(["group", "begin", "--admin"]).arg(&replicas[0].admin).stderr(Stdio::null());
        begin.status().expect("it starts").success()
    });
    wait("the group serves", &replicas, touched);
    replicas[2] = {
        let [.., last] = &mut replicas;
        last.child.kill().expect("it runs");
        last.child.wait().expect("it ended");
        of(3, &other)
    };
    // Both ends say so, and what to do.
    let is_refused = |replica: &Replica| {
        let said = replica.said();
        said.contains("build is ") && said.contains("run the same build on all replicas")
    };
    wait("the other build is refused", &replicas, || {
        is_refused(&replicas[2]) && replicas[..2].iter().any(is_refused)
    });
    assert!(replicas[..2].iter().any(|one| one.said().contains("replica 3 is refused: build is")));
    // The two others serve, also what it would answer otherwise.
    wait("the others serve", &replicas, touched);
    for replica in &replicas[..2] {
        assert_eq!(replica.ask("evidence").trim(), "", "{}", replica.said());
    }
}

//! Hosts: threads with a network and mounts of their own, on which replicas and clients run as on other machines.
//!
//! A thread that leaves its namespaces takes everything that it starts with it: processes, threads, sockets. No
//! namespace has a name that could outlive the run: when the last process of a host has ended, the kernel removes its
//! network and its mounts, also after a `kill -9` of the run itself (replicas end when their standard input closes).
//! Where namespaces are not allowed, all hosts are this one, on loopback addresses, and there is no network to disturb.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::switch::{self, MTU, Switch};

/// A job for a host.
type Job = Box<dyn FnOnce() + Send>;

/// One host.
#[derive(Debug)]
pub struct Host {
    /// Its address for other hosts.
    pub address: IpAddr,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// A thread that is a host of its own once `enter` has run on it.
    fn start<T: Send + 'static>(
        number: usize,
        address: IpAddr,
        enter: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<(Self, T)> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let thread = thread::Builder::new().name(format!("host-{}", number + 1)).spawn(move || {
            inbox.into_iter().for_each(|job| job());
        })?;
        let host = Host { address, jobs: Some(jobs), thread: Some(thread) };
        let entered = host.run(enter)?;
        Ok((host, entered))
    }

    /// Runs `job` on this host and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let job: Job = Box::new(move || {
            // If the caller no longer waits, the result is not needed.
            let _ = sender.send(job());
        });
        let jobs = self.jobs.as_ref().expect("taken only when it is dropped");
        jobs.send(job).expect("a host's thread ends with the host");
        receiver.recv().expect("a job on a host does not panic")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The hosts of a run, and their network.
#[derive(Debug)]
pub struct Testbed {
    /// Replicas' hosts first, then the clients'.
    pub hosts: Vec<Host>,
    /// The network; none on loopback.
    pub switch: Option<Switch>,
    /// Directory of a small disk on each replica's host; none on loopback, or without one in the plan.
    pub disks: Vec<Option<PathBuf>>,
    /// Why there are no namespaces.
    pub confined: Option<String>,
}

impl Testbed {
    /// Hosts for `replicas` replicas and the clients. With `disk`, each replica has a disk of so many bytes below
    /// `dir`.
    ///
    /// # Errors
    /// When not even loopback can be used.
    pub fn make(replicas: usize, dir: &Path, disk: Option<u64>, seed: u64) -> anyhow::Result<Self> {
        match Self::namespaces(replicas, dir, disk, seed) {
            Ok(testbed) => Ok(testbed),
            Err(why) => Self::loopback(replicas, dir, disk, format!("{why:#}")),
        }
    }

    /// Hosts in namespaces.
    ///
    /// # Errors
    /// When the machine does not allow them, with the step that failed.
    pub fn namespaces(replicas: usize, dir: &Path, disk: Option<u64>, seed: u64) -> anyhow::Result<Self> {
        let mut testbed = Testbed { hosts: vec![], switch: None, disks: vec![], confined: None };
        let mut devices = Vec::new();
        for number in 0..=replicas {
            let disk = disk.filter(|_| number < replicas).map(|bytes| (disk_of(dir, number), bytes));
            testbed.disks.push(disk.as_ref().map(|(path, _)| path.clone()));
            let address = switch::address(number);
            let (host, device) =
                Host::start(number, IpAddr::V4(address), move || enter(address, disk.as_ref()))?;
            testbed.hosts.push(host);
            devices.push(device);
        }
        testbed.switch = Some(Switch::start(devices, seed)?);
        Ok(testbed)
    }

    /// All are this machine.
    ///
    /// # Errors
    /// When there are no more threads, or a disk's directory cannot be made.
    pub fn loopback(replicas: usize, dir: &Path, disk: Option<u64>, why: String) -> anyhow::Result<Self> {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let host = |number| Ok(Host::start(number, localhost, || Ok(()))?.0);
        let hosts = (0..=replicas).map(host).collect::<anyhow::Result<_>>()?;
        let mut disks: Vec<_> = (0..replicas).map(|number| disk.map(|_| disk_of(dir, number))).collect();
        for path in disks.iter().flatten() {
            std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
        }
        disks.push(None);
        Ok(Testbed { hosts, switch: None, disks, confined: Some(why) })
    }

    /// The number of replicas.
    pub fn replicas(&self) -> usize {
        self.hosts.len() - 1
    }

    /// The clients' host.
    pub fn clients(&self) -> &Host {
        &self.hosts[self.replicas()]
    }
}

fn disk_of(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("disk-{}", number + 1))
}

/// Makes the calling thread a host: a network with one device, and a disk of its own if requested.
fn enter(address: Ipv4Addr, disk: Option<&(PathBuf, u64)>) -> anyhow::Result<SyncDevice> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context("leaving the machine's namespaces")?;
    // Later mounts are visible on this host only.
    mount::<str, str, str, str>(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)
        .context("keeping mounts private")?;
    ip(&["link", "set", "lo", "up"])?;
    let device = DeviceBuilder::new()
        .name("host0")
        .ipv4(address, 24, None)
        .mtu(MTU)
        .build_sync()
        .context("making a TUN device")?;
    if let Some((path, bytes)) = disk {
        std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
        let options = format!("size={bytes}");
        mount(Some("trial"), path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .with_context(|| format!("mounting a small disk on {}", path.display()))?;
    }
    Ok(device)
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| anyhow!("the program `ip` (iproute2) does not run: {error}"))?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

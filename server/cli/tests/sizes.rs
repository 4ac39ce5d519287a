//! A group grows and shrinks while it serves, without a restart of the replicas that stay.

use memcached_client::load::RunningLoad;
use serde_json::Value;

use crate::failover::load;
use crate::moving::{Group, Machine, another_machine};
use crate::support::cluster::Wish;

/// A group of three that `up` has started, and the replicas that are added to it.
struct Grown {
    group: Group,
    /// Addresses of the added ones for their peers.
    addresses: Vec<String>,
    added: Vec<Machine>,
}

impl Grown {
    fn of(wish: &Wish) -> Grown {
        Grown { group: Group::up(wish), addresses: Vec::new(), added: Vec::new() }
    }

    /// Starts two more replicas, with configurations that list all.
    fn start_two(&mut self) {
        self.addresses.extend((0..2).map(|_| another_machine()));
        let first = self.added.len();
        for number in first..self.addresses.len() {
            self.added.push(self.start(number));
        }
    }

    fn start(&self, number: usize) -> Machine {
        self.group.start(&self.configuration(number), &format!("added-{number}"))
    }

    /// The configuration of an added replica.
    fn configuration(&self, number: usize) -> String {
        let directory = self.group.directory.path();
        let own = |line: &str| match line.split(" = ").next().unwrap_or_default() {
            "this_replica" => format!("this_replica = {}\n", number + 4),
            "listen" => format!("listen = \"{}\"\n", clients_of(&self.addresses[number])),
            "admin" => format!("admin = \"{}\"\n", self.admin(number)),
            "data_dir" => format!("data_dir = \"{}\"\n", directory.join(format!("data-{number}")).display()),
            _ => format!("{line}\n"),
        };
        let text: String = self.group.configurations[0].lines().map(own).collect();
        let section = |(number, address): (usize, &String)| {
            format!("\n[[replica]]\nnumber = {}\naddress = \"{address}\"\n", number + 4)
        };
        text + &self.addresses.iter().enumerate().map(section).collect::<String>()
    }

    /// The messages of the added ones.
    fn said(&self) -> String {
        self.added.iter().map(Machine::said).collect::<Vec<_>>().join("---\n")
    }

    fn admin(&self, number: usize) -> String {
        self.group.directory.path().join(format!("added-{number}.sock")).display().to_string()
    }

    fn grow(&self, asked: usize) -> (i32, String) {
        let [.., one, other] = &self.addresses[..] else { panic!("two were started") };
        let admin = self.group.cluster.admin_of(asked);
        self.group.cluster.command(&[
            "group",
            "grow",
            "--address",
            one,
            "--address",
            other,
            "--admin",
            &admin,
        ])
    }

    /// Asks these replicas of those that `up` has started.
    fn shrink(&self, asked: &[usize]) -> (i32, String) {
        let admins: Vec<String> = asked.iter().map(|replica| self.group.cluster.admin_of(*replica)).collect();
        let options = admins.iter().flat_map(|admin| ["--admin", admin.as_str()]);
        let words: Vec<&str> = ["group", "shrink"].into_iter().chain(options).collect();
        self.group.cluster.command(&words)
    }

    /// Waits until these replicas of the first three, and all that were added, serve in a group of so many.
    fn wait_whole(&self, firsts: &[usize], size: u64) {
        let tolerates = (size - 1) / 2;
        let is_whole = |status: Value| {
            status["phase"] == "serving" && status["tolerates"] == tolerates && status["replicas"] == size
        };
        let deadline = std::time::Instant::now() + crate::support::cluster::PATIENCE;
        while !firsts.iter().all(|of| self.group.cluster.status(*of).is_some_and(is_whole)) {
            assert!(std::time::Instant::now() < deadline, "{}\n{}", self.group.cluster.seen(), self.said());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Those that were added end, and say that the group has let them go.
    fn added_are_let_go(&mut self) {
        for mut machine in self.added.drain(..) {
            let code = machine.wait_for_end(&self.group.cluster);
            let said = machine.said();
            assert!(code == Some(2) && said.contains("the group has let this replica go"), "{code:?} {said}");
        }
        self.addresses.clear();
    }
}

/// The address for clients of a replica with this address for peers.
fn clients_of(address: &str) -> String {
    address.replace(":12211", ":11211")
}

fn end_right(grown: Grown, running: RunningLoad) {
    let report = running.stop_and_audit(grown.group.cluster.clients());
    println!("{report}");
    report.assert_right();
    let firsts: Vec<usize> = (0..3).filter(|of| grown.group.cluster.status(*of).is_some()).collect();
    for replica in firsts {
        assert_eq!(grown.group.cluster.evidence(replica, 0), Vec::<Value>::new(), "at {}", replica + 1);
    }
    grown.group.cluster.finish();
}

fn grow_and_shrink_under_load(wish: &Wish) {
    let mut grown = Grown::of(wish);
    let running = load(&grown.group.cluster).start();
    running.must_go_on(500, "in a group of three");
    grown.start_two();
    let (code, said) = grown.grow(0);
    let added = grown.said();
    assert!(code == 0 && said.contains("the group has 5 replicas from now on"), "{code} {said}\n{added}");
    grown.wait_whole(&[0, 1, 2], 5);
    running.must_go_on(1_000, "in a group of five");
    let (code, said) = grown.shrink(&[0, 1, 2]);
    assert!(code == 0 && said.contains("the group has 3 replicas from now on"), "{code} {said}");
    grown.added_are_let_go();
    grown.wait_whole(&[0, 1, 2], 3);
    running.must_go_on(1_000, "in a group of three again");
    grown.group.cluster.assert_equal_state();
    end_right(grown, running);
}

#[test]
fn a_group_grows_and_shrinks_under_load() {
    grow_and_shrink_under_load(&Wish::default());
}

//! memcached as the service of this program: its settings, and how a replica of it is built.

#[cfg(feature = "lab")]
pub mod lab;

use std::fmt::Write as _;
use std::sync::Arc;

use crosscheck::{Behaviors, MakeProtocol};
#[cfg(feature = "lab")]
use lab::Experiment;
use memcached::limits::{ITEM_BYTES_MAX, ITEM_BYTES_MIN, LARGEST_ITEMS_PER_SHARD, MEMORY_MB_MAX};
use memcached::settings::{ITEM, MEMORY};
use node::config::{PasswordFile, TableReader};
use node::{Application, ReplicaParts, Wrong};

/// Memory for items in MiB unless the operator gives another number; memcached's own default.
pub const DEFAULT_MEMORY_MB: u64 = 64;

/// A replica's configuration.
pub type NodeConfig = node::config::NodeConfig<MemcachedOptions>;
/// A cluster that can be started.
pub type ClusterPlan = node::cluster::ClusterPlan<MemcachedOptions>;
/// The options of a cluster.
pub type ClusterOptions = node::cluster::ClusterOptions<MemcachedOptions>;

/// The program `crosscheck`.
pub struct Memcached;

impl Application for Memcached {
    const NAME: &'static str = "crosscheck";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    // The laboratory's command can be started as a later release (`lab::behaviors`).
    const BEHAVIORS: Behaviors = Behaviors::FIRST;
    const ABOUT: &'static str = "A replicated, self-checking, self-repairing memcached-compatible server";
    const PORT: u16 = 11_211;
    const OBJECTS: &'static str = "  \
  item:KEY   the item with that key          slot:KEY   its slot in the hash table
  shard:N    the root of shard N, from 0     queue:N    the page of shard N's queue that is evicted from next
Member 0 of an item is its key and the value behind it: bits from 32 on, after the length.";
    const OBJECT: &'static str = "item:greeting";

    type Service = memcached::Memcached;
    type Protocol = memcached::Connection;
    type Options = MemcachedOptions;

    fn build(options: &MemcachedOptions) -> Result<ReplicaParts<Self>, String> {
        #[cfg(feature = "lab")]
        options.experiment.apply();
        let service = memcached::Memcached::new(options.config()).map_err(|error| error.to_string())?;
        let stats = service.stats().clone();
        let passwords = options.password_file.open()?.map(Arc::new);
        let make_protocol: MakeProtocol<memcached::Connection> = Arc::new(move |accepted| {
            let connection = memcached::Connection::new(stats.clone(), accepted.counters.clone());
            match &passwords {
                Some(passwords) => connection.asking_for(passwords.clone()),
                None => connection,
            }
        });
        Ok((service, make_protocol))
    }
}

/// memcached's fields of the configuration file, and its options of `up`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct MemcachedOptions {
    /// Memory for items per replica, in MiB
    #[arg(
        long = "memory",
        value_name = "MB",
        default_value_t = DEFAULT_MEMORY_MB,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20),
    )]
    pub memory_limit_mb: u64,
    /// Longest item, in bytes.
    #[arg(skip = MemcachedOptions::default().item_size_max)]
    pub item_size_max: u64,
    /// Who may use the cache.
    #[command(flatten)]
    pub password_file: PasswordFile,
    /// What an experiment changes.
    #[cfg(feature = "lab")]
    #[arg(skip)]
    pub experiment: Experiment,
}

impl Default for MemcachedOptions {
    fn default() -> Self {
        MemcachedOptions {
            memory_limit_mb: DEFAULT_MEMORY_MB,
            item_size_max: 1 << 20,
            password_file: PasswordFile::default(),
            #[cfg(feature = "lab")]
            experiment: Experiment::default(),
        }
    }
}

impl MemcachedOptions {
    /// The configuration of the service.
    pub fn config(&self) -> memcached::Config {
        let item_bytes = usize::try_from(self.item_size_max).unwrap_or(usize::MAX);
        memcached::Config::new(self.memory_limit_mb << 20, item_bytes)
    }
}

impl node::ServiceOptions for MemcachedOptions {
    const FIELDS: &'static [&'static str] = &[MEMORY, ITEM, PasswordFile::FIELD];
    const LAB_FIELDS: &'static [&'static str] = &["work_us", "guarded_classes"];
    const EXAMPLE: &'static str = include_str!("service.toml");

    fn read(file: &mut TableReader<'_>) -> Self {
        let default = MemcachedOptions::default();
        let memory = file.integer(MEMORY, 1..=u64::from(MEMORY_MB_MAX), "MiB");
        let item = file.integer(ITEM, ITEM_BYTES_MIN as u64..=ITEM_BYTES_MAX as u64, "bytes");
        MemcachedOptions {
            memory_limit_mb: memory.unwrap_or(default.memory_limit_mb),
            item_size_max: item.unwrap_or(default.item_size_max),
            password_file: PasswordFile::read(file),
            #[cfg(feature = "lab")]
            experiment: Experiment::read(file),
        }
    }

    fn write(&self, file: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(file, "memory_limit_mb = {}", self.memory_limit_mb);
        let _ = writeln!(file, "item_size_max = {}", self.item_size_max);
        self.password_file.write(file);
        #[cfg(feature = "lab")]
        self.experiment.write(file);
    }

    /// Memory must have space for a few of the longest items, or they could never be stored.
    fn check(&self) -> Result<(), Wrong> {
        self.config().check().map_err(|error| {
            let needed = (LARGEST_ITEMS_PER_SHARD * self.item_size_max).div_ceil(1 << 20);
            Wrong {
                field: "memory_limit_mb",
                flag: "--memory",
                what: error.to_string(),
                remedy: format!("use at least {needed} MiB, or a smaller item_size_max"),
            }
        })
    }

    fn examine(&self) -> Result<(), Wrong> {
        self.password_file.examine()
    }

    fn memory_mb(&self) -> Option<(&'static str, u64)> {
        Some(("memory_limit_mb", self.memory_limit_mb))
    }

    #[cfg(feature = "lab")]
    fn equal_on_all_replicas(&self) -> Vec<(String, String)> {
        self.experiment.equal_settings().into_iter().collect()
    }

    fn at_founding(&self) -> Vec<(String, String)> {
        let values = [(MEMORY, self.memory_limit_mb), (ITEM, self.item_size_max)];
        values.map(|(name, value)| (name.to_owned(), value.to_string())).into()
    }

    fn request_bytes(&self) -> usize {
        memcached::Config::request_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crosscheck::{Durability, GroupKey};
    use node::ServiceOptions as _;
    use node::config::{Problems, example, quoted};
    use node::outcome::Misuse;
    use node::serve::replica;

    use super::*;

    fn parse(text: &str) -> Result<NodeConfig, Problems> {
        let key = GroupKey { cluster: "test".to_owned(), key: [7; 32] };
        node::config::parse("node.toml", text, &|_| Ok(key.to_text()))
    }

    /// Reads the example with one line replaced, and returns the text of its only problem.
    fn problem_with(line: &str, instead: &str) -> String {
        let example = example::<MemcachedOptions>();
        assert!(example.contains(line), "the example has no line `{line}`");
        let problems = parse(&example.replacen(line, instead, 1)).expect_err(instead);
        assert_eq!(problems.list.len(), 1, "{problems}");
        problems.to_string()
    }

    #[test]
    fn the_example_parses_and_documents_every_field_with_its_default() {
        let example = example::<MemcachedOptions>();
        let config = parse(&example).expect("the example");
        assert_eq!((config.service.memory_limit_mb, config.service.item_size_max), (1024, 1 << 20));
        for field in MemcachedOptions::FIELDS {
            let at = example.lines().position(|line| line.starts_with(&format!("{field} = ")));
            let at = at.unwrap_or_else(|| panic!("`{field}` is not in the example"));
            assert!(example.lines().nth(at - 1).is_some_and(|line| line.starts_with("# ")), "{field}");
        }
        let default = MemcachedOptions::default();
        for (name, value) in [
            ("memory_limit_mb", default.memory_limit_mb.to_string()),
            ("item_size_max", default.item_size_max.to_string()),
            ("password_file", quoted("")),
        ] {
            let head = example.split(&format!("\n{name} = ")).next().unwrap_or_default();
            let reported = head.rsplit("default: ").next().and_then(|rest| rest.lines().next());
            assert_eq!(reported, Some(value.as_str()), "default of {name}");
        }
        assert!(example.contains(&format!("in bytes, {ITEM_BYTES_MIN} to {ITEM_BYTES_MAX}.")));
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut config = parse(&example::<MemcachedOptions>()).expect("the example");
        config.service.password_file.path = Some(PathBuf::from("/etc/pass\"words"));
        assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
        #[cfg(feature = "lab")]
        for guarded_classes in [None, Some(Vec::new()), Some(vec!["Item".to_owned(), "Bucket".to_owned()])] {
            config.service.experiment = Experiment { work_us: 7, guarded_classes };
            assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
        }
    }

    #[test]
    fn wrong_values_are_named_with_their_remedy() {
        let needed = format!("at least {LARGEST_ITEMS_PER_SHARD} MiB");
        let reported = problem_with("memory_limit_mb = 1024", "memory_limit_mb = 1");
        assert!(reported.contains(": memory_limit_mb: ") && reported.contains(&needed), "{reported}");
        assert!(
            problem_with("memory_limit_mb = 1024", "memory_limit_mb = 0").contains("from 1 to 1048576 MiB")
        );
        assert!(
            problem_with("item_size_max = 1048576", "item_size_max = 5")
                .contains("from 4096 to 3145728 bytes")
        );
        let reported = problem_with("password_file", "guarded_classes = \"Items\"\npassword_file");
        let expected = if cfg!(feature = "lab") { "there is no class `Items`" } else { "crosscheck-lab" };
        assert!(reported.contains(expected), "{reported}");
        let wish = ClusterOptions {
            port: Some(0),
            service: MemcachedOptions { memory_limit_mb: 1, ..MemcachedOptions::default() },
            ..ClusterOptions::default()
        };
        let reported = ClusterPlan::new(&wish).expect_err("too little memory").to_string();
        assert!(reported.contains(&needed) && reported.ends_with("(--memory)"), "{reported}");
    }

    #[test]
    fn settings_that_must_be_equal_keep_their_names_and_order() {
        let settings = parse(&example::<MemcachedOptions>()).expect("the example").settings();
        let pairs = |of: &[(&str, &str)]| -> Vec<(String, String)> {
            of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let service = [("service", concat!("crosscheck ", env!("CARGO_PKG_VERSION")))];
        assert_eq!(settings.service, pairs(&service));
        let founding = [("memory_limit_mb", "1024"), ("item_size_max", "1048576")];
        assert_eq!(settings.founding, pairs(&founding), "equal where a group is founded");
    }

    #[test]
    fn a_data_directory_that_cannot_be_used_is_said_once_and_no_restart_helps() {
        let root = tempfile::tempdir().expect("a directory");
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let admin = crosscheck::admin::Endpoint::Unix(root.path().join("admin.sock"));
        let mut config = NodeConfig::new(1, vec![nowhere; 3], nowhere, admin);
        config.durability = Durability::Disk(root.path().to_owned());
        for name in ["identity", "state.cut", "log/00000007.log"] {
            std::fs::create_dir_all(root.path().join("log")).expect("a directory");
            std::fs::write(root.path().join(name), "mine").expect("a file");
            let error = replica::<Memcached>(&config, false).expect_err("it does not start");
            let text = format!("{error:#}");
            assert!(error.is::<Misuse>(), "{text}");
            assert_eq!(text.matches(&format!("{name} is not a file of this program")).count(), 1, "{text}");
            assert_eq!(text.matches("move that file away and start again").count(), 1, "{text}");
            std::fs::remove_file(root.path().join(name)).expect("it is still there");
        }
    }
}

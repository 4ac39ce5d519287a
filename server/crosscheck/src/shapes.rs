//! What a service is made of, for the handshake: two replicas whose critical types or requests differ do not compare
//! what they compute.

use std::collections::{BTreeMap, BTreeSet};

use object::Shape;
use object::hidden::Class;

use crate::service::Service;

/// Most classes that are named; all further ones count as one.
const NAMED: usize = 24;
/// The prefix of a class's name in the hello.
pub(crate) const CLASS: &str = "class ";
/// The name of all classes beyond [`NAMED`] in the hello.
pub(crate) const FURTHER: &str = "further classes";
/// The name of the requests in the hello.
pub(crate) const REQUESTS: &str = "set of requests";

/// The critical types that can be behind the service's locks, and its requests: name, and what it is made of.
pub(crate) fn of<S: Service>(service: &S) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut classes: BTreeMap<&str, Vec<&Class>> = BTreeMap::new();
    for lock in service.locks() {
        lock.classes(&mut |class| {
            let is_new = seen.insert(class.name);
            if is_new {
                classes.entry(class.short_name()).or_default().push(class);
            }
            is_new
        });
    }
    let mut shapes: Vec<(String, String)> =
        classes.iter().map(|(name, classes)| (format!("{CLASS}{name}"), of_classes(classes))).collect();
    if shapes.len() > NAMED {
        let further = shapes.split_off(NAMED);
        let mut shape = Shape::default();
        further.iter().for_each(|(name, made_of)| shape.member(name, made_of));
        shapes.push((FURTHER.to_owned(), format!("{} ({:016x})", further.len(), shape.digest())));
    }
    let mut requests = Shape::default();
    S::shape_of_requests(&mut requests);
    shapes.push((REQUESTS.to_owned(), format!("{:016x}", requests.digest())));
    shapes
}

/// Classes of one name, in different modules: mostly one.
fn of_classes(classes: &[&Class]) -> String {
    let mut shape = Shape::default();
    let mut ordered = classes.to_vec();
    ordered.sort_by_key(|class| class.name);
    for class in ordered {
        // Of each class its own description: what is part of two of them counts for both.
        let mut one = Shape::default();
        (class.shape)(&mut one);
        shape.member(class.name, &format!("{:016x}", one.digest()));
    }
    let members: usize = classes.iter().map(|class| class.members.len()).sum();
    format!("{members} member{} ({:016x})", if members == 1 { "" } else { "s" }, shape.digest())
}

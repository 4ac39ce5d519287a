//! What the model says as blocks of a page, each of them labelled.

use ::report::{Block, Table};
use node::view::grouped;

use super::findings::{EveModel, ModelRow, TOLERANCE};

/// What every reader needs to interpret the figures.
const ABOUT: &str = "Nothing here was measured except the columns that say so. A model of discrete events draws times \
    of requests, barriers, folding and planning from a results file of `bench executor`, and plans the same log with \
    the shipped mixer. Rollbacks, the leader's work and the network's bandwidth are not in it, and its cores do not \
    share caches or memory bandwidth.";

/// Speed-ups of the paper's Fig. 4, with 16 threads on 16 cores.
const PAPER: [(&str, &str); 3] = [("10 ms", "12.5"), ("1 ms", "10"), ("0.1 ms", "3.3")];

/// The whole model.
pub fn blocks(model: &EveModel) -> Vec<Block> {
    let mut blocks =
        vec![Block::Heading(2, "Model: Eve's executor with more cores".into()), Block::Text(ABOUT.into())];
    if !model.without.is_empty() {
        let parts: Vec<String> =
            model.without.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
        blocks.push(Block::Warning(format!("The model lacks: {}.", parts.join(", "))));
    }
    if !model.has_distributions {
        let what =
            "The file has means only: each request takes the mean time, and barriers and steps take none.";
        blocks.push(Block::Warning(what.into()));
    }
    blocks.push(Block::List(vec![
        format!("Times: commit {}, {} cores", model.commit, model.measured_cores),
        format!("Seed: {}", model.seed),
    ]));
    blocks.push(Block::Table(validation(model)));
    blocks.push(verdict(model));
    let rows = |rows: &[ModelRow], caption: &str, head: &str, paper: bool| {
        let cells = rows.iter().map(|row| {
            let quoted = PAPER.iter().find(|(name, _)| paper && row.workers == 16 && *name == row.name);
            [
                row.name.clone(),
                row.workers.to_string(),
                format!("{:.1}", row.parallel_batches),
                whole(row.throughput),
                format!("{:.2}", row.speed_up),
                quoted.map_or(String::new(), |(_, paper)| (*paper).to_owned()),
            ]
        });
        let length = if paper { 6 } else { 5 };
        let head = [
            head,
            "Workers = cores",
            "Parallel batches per batch",
            "Model: requests/s",
            "Model: ratio",
            "Paper",
        ];
        Block::Table(
            Table::new(caption, head[..length].to_vec()).rows(cells.map(|row| row[..length].to_vec())),
        )
    };
    blocks.push(rows(&model.by_work, "model: speed-up by work of a request (Fig. 4)", "Work", true));
    blocks.push(rows(&model.by_conflicts, "model: speed-up by conflicts, 1 ms per request", "Log", false));
    let caption = "model: time from a token to the agreement on it, least work, eight batches ahead";
    blocks.push(rows(&model.by_token, caption, "Agreement takes", false));
    blocks
}

fn validation(model: &EveModel) -> Table {
    let rows = model.validation.iter().map(|side| {
        [
            side.side.clone(),
            whole(side.model),
            whole(side.measured),
            format!("{}..{}", whole(side.measured_min), whole(side.measured_max)),
            format!("{:+.1} %", side.difference * 100.0),
            if side.holds { "holds" } else { "MISSES" }.to_owned(),
        ]
    });
    let head = ["Side", "Model: requests/s", "Measured", "Range", "Difference", "Validation"];
    Table::new("model: validation against measured sides, on the measured cores", head).rows(rows)
}

fn verdict(model: &EveModel) -> Block {
    let misses: Vec<&str> =
        model.validation.iter().filter(|side| !side.holds).map(|side| side.side.as_str()).collect();
    let percent = TOLERANCE * 100.0;
    if model.holds() {
        Block::Text(format!("The model is within {percent} % of every measured side."))
    } else if misses.is_empty() {
        Block::Warning("The file has no side that judges the model.".into())
    } else {
        let misses = misses.join("; ");
        Block::Warning(format!(
            "The validation FAILS: the model is more than {percent} % from: {misses}. Do not quote its figures."
        ))
    }
}

fn whole(throughput: f64) -> String {
    grouped(throughput.round() as u64)
}

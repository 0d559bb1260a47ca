//! The report as text: 80 columns, readable without colours, with the verdict last.

use super::Report;
use super::features::{Finding, Presence};
use super::kernel::Kernel;
use super::limits::Limit;
use super::measure::{Measured, Read};
use super::paths::{Capability, PathReport, Support};
use super::ring::Ring;
use super::start::Start;
use cringle_report::page::{Rows, wrapped};
use cringle_report::units::{count, figure, size};
use cringle_report::{colored, table};

/// The width of the first column, including the spaces around the names.
const NAMES: usize = 23;

pub(super) fn of(report: &Report) -> String {
    let mut page = Page::default();
    kernel(&mut page, &report.kernel);
    ring(&mut page, &report.io_uring);
    features(&mut page, &report.io_uring);
    report.paths.iter().for_each(|path| self::path_report(&mut page, path));
    page.heading("Limits");
    report.limits.iter().for_each(|limit| self::limit(&mut page, limit));
    page.heading("Fibers");
    let thread_locals = match &report.thread_locals.why {
        None => "each fiber has its own",
        Some(why) => &format!("fibers share those of their worker: {why}"),
    };
    page.row("thread-locals", thread_locals);
    let moves = match report.thread_locals.moves {
        true => "a fiber may move to another worker",
        false => "none: a fiber stays on the worker that has started it",
    };
    page.row("moves", moves);
    if let Some(measured) = &report.measured {
        self::measured(&mut page, measured);
    }
    page.heading("Verdict");
    page.paragraph(&report.verdict.sentence);
    page.finished()
}

/// A report as it is written.
#[derive(Default)]
pub struct Page(String);

impl Page {
    pub fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        if colored() {
            self.0.push_str(&format!("\u{1b}[1m{text}\u{1b}[0m\n"));
        } else {
            self.0.push_str(&format!("{text}\n"));
        }
    }

    /// Writes a name and, in the second column, a text.
    pub fn row(&mut self, name: &str, text: &str) {
        let mut first = format!("  {name:<width$}", width = NAMES - 2);
        // A name too long for its column gets its own line.
        if first.chars().count() > NAMES {
            self.line(&first);
            first = " ".repeat(NAMES);
        }
        self.0.push_str(&wrapped(text, &first));
    }

    pub fn paragraph(&mut self, text: &str) {
        self.0.push_str(&wrapped(text, "  "));
    }

    pub fn finished(self) -> String {
        self.0
    }

    fn line(&mut self, text: &str) {
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }
}

fn kernel(page: &mut Page, kernel: &Kernel) {
    page.heading("Kernel");
    page.row("release", &format!("Linux {}, {}", kernel.release, kernel.architecture));
    page.row("processors", &format!("{} that this process may use", kernel.processors));
    let container = kernel.container.as_deref().map_or("none found".into(), str::to_owned);
    page.row("container", &container);
    let machine = match kernel.virtual_machine.as_deref() {
        Some("unknown") => "yes, of an unknown kind",
        Some(kind) => kind,
        None => "none found",
    };
    page.row("virtual machine", machine);
    if !kernel.proc_is_readable {
        page.row("/proc", "cannot be read: much below is unknown for that reason");
    }
}

fn ring(page: &mut Page, ring: &Ring) {
    page.heading(if ring.usable { "io_uring: allowed" } else { "io_uring: not usable" });
    for call in &ring.calls {
        let detail = call.outcome.detail().map(|text| format!(": {text}")).unwrap_or_default();
        page.row(call.name.text(), &format!("{}{detail}", call.outcome.word()));
    }
    let start = match ring.runtime {
        Start::Ring => "starts, on the ring",
        Start::Fallback => "starts, without the ring",
        Start::Refuses => "does not start on the ring",
        Start::Killed => "is killed when it starts",
        Start::Unknown => "could not be tested",
    };
    page.row("a runtime", start);
    for cause in &ring.causes {
        page.row("cause", &cause.what);
        cause.remedies.iter().for_each(|remedy| page.row("  remedy", remedy));
    }
}

fn features(page: &mut Page, ring: &Ring) {
    let known = ring.features.iter().any(|found| found.state != Presence::Unknown);
    if !known {
        page.heading("Features of the ring");
        let why = ring.note.as_deref().unwrap_or("no test had a result");
        page.paragraph(&format!("unknown: {why}"));
        return;
    }
    page.heading("Features that Cringle uses");
    let (used, others): (Vec<_>, Vec<_>) =
        ring.features.iter().partition(|found| found.used_by_the_driver);
    feature_table(page, &used);
    page.heading("Other features of this kernel's ring");
    feature_table(page, &others);
    if let Some(note) = &ring.note {
        page.paragraph(&format!("not all could be tested: {note}"));
    }
}

fn feature_table(page: &mut Page, features: &[&Finding]) {
    page.line(&format!("  {:<6}{:<7}{:<18}{}", "has", "since", "feature", "without it"));
    for found in features {
        let (state, since) = (found.state.word(), found.since);
        page.line(&format!(
            "  {}{since:<7}{:<18}{}",
            marked(state, 6, found.state == Presence::Missing),
            found.name,
            found.cost_of_lacking_it
        ));
    }
}

/// Pads a text to a width, and colours it yellow if it is striking.
fn marked(text: &str, width: usize, striking: bool) -> String {
    let padded = format!("{text:<width$}");
    if striking && colored() { format!("\u{1b}[33m{padded}\u{1b}[0m") } else { padded }
}

fn path_report(page: &mut Page, path: &PathReport) {
    page.heading(&format!("Path {}", path.path.display()));
    let mount = match &path.mount_point {
        Some(point) => format!("{}, {}", point.display(), path.filesystem),
        None => path.filesystem.clone(),
    };
    page.row("mount", &mount);
    page.row("device", &device(path));
    if let Some(memory) = &path.in_memory {
        page.row("memory", &format!("{memory}: its figures are not those of a disk"));
    }
    if let Some(why) = &path.not_writable_because {
        page.row("writable", &format!("no temporary file: {why}"));
    }
    let alignment = path.direct_alignment.as_ref().map(|alignment| {
        let memory = alignment.memory_bytes.map(|bytes| format!(", memory to {bytes}"));
        let (memory, offset) = (memory.unwrap_or_default(), alignment.offset_bytes);
        let by = if alignment.by == "statx" { "by statx" } else { alignment.by };
        format!("; offsets and lengths aligned to {offset} bytes{memory} ({by})")
    });
    page.row("O_DIRECT", &format!("{}{}", capability(&path.direct), alignment.unwrap_or_default()));
    page.row("NOWAIT reads", &capability(&path.nowait_reads));
    page.row("NOWAIT writes", &capability(&path.nowait_writes));
    page.row("reflinks", &capability(&path.reflink));
    page.row("polled queues", &capability(&path.polled));
}

fn device(path: &PathReport) -> String {
    let Some(device) = &path.device else { return "unknown".into() };
    let kind = path.rotational.map(|spins| if spins { "rotating" } else { "solid state" });
    let scheduler = path.scheduler.as_ref().map(|name| format!("scheduler {name}"));
    let parts = [Some(device.clone()), path.model.clone(), kind.map(str::to_owned), scheduler];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn capability(capability: &Capability) -> String {
    let word = match capability.support {
        Support::Yes => "yes",
        Support::No => "no",
        Support::Unknown => "unknown",
    };
    format!("{word}: {}", capability.detail)
}

fn limit(page: &mut Page, limit: &Limit) {
    let value = limit.value.as_deref().unwrap_or("unknown");
    let enough = match limit.enough {
        Some(true) => ", enough",
        Some(false) => ", TOO LOW",
        None => "",
    };
    let remedy = limit.remedy.as_ref().map(|remedy| format!("; to raise it: {remedy}"));
    let remedy = remedy.unwrap_or_default();
    page.row(limit.name, &format!("{value}{enough}: {}{remedy}", limit.meaning));
}

fn measured(page: &mut Page, measured: &Measured) {
    page.heading("Measured: reads per second, of one thread or worker");
    let mut paths: Vec<_> = measured.reads.iter().map(|read| &read.path).collect();
    paths.dedup();
    for path in paths {
        let rows = measured.reads.iter().filter(|read| read.path == *path).map(cells);
        let header = ["reads", "in flight", "pread", "ring", "fibers", "fibers : pread"];
        page.line(&format!("  {}", path.display()));
        table::rows(&Rows::new(&header, rows))
            .lines()
            .for_each(|line| page.line(&format!("  {line}")));
    }
    if let Some(ns) = measured.fiber_switch_ns {
        page.paragraph(&format!("A switch between fibers takes {} ns.", figure(ns)));
    }
    measured.notes.iter().for_each(|note| page.paragraph(note));
}

fn cells(read: &Read) -> Vec<String> {
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".into(), count);
    let ratio = read.fibers.zip(read.pread).map(|(fibers, pread)| format!("{:.2}", fibers / pread));
    vec![
        format!("{} {}", read.profile, size(read.block_bytes as u64)),
        read.queue_depth.to_string(),
        or_dash(read.pread),
        or_dash(read.ring),
        or_dash(read.fibers),
        ratio.unwrap_or_else(|| "–".into()),
    ]
}

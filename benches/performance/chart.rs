//! Bars with whiskers, as SVG that can be read on a light and on a dark page.

use std::fmt::Write;

use super::contenders::Role;
use super::stats::{Figure, number};

pub struct Bar {
    pub label: String,
    pub role: Role,
    pub figure: Figure,
}

const LEFT: f64 = 230.0;
const WIDTH: f64 = 760.0;
const PLOT: f64 = 400.0;
const ROW: f64 = 26.0;
const TOP: f64 = 44.0;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:15px}\
.n{fill:#59636e}.axis{stroke:#d1d9e0}.w{stroke:#1f2328;stroke-width:1.5}\
.floor{fill:#8c959f}.us{fill:#0969da}.peer{fill:#bf8700}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.n{fill:#9198a1}.axis{stroke:#3d444d}.w{stroke:#f0f6fc}\
.floor{fill:#656c76}.us{fill:#4493f8}.peer{fill:#d29922}}";

/// A chart. With `log`, lengths are logarithms: for values that lie decades apart.
pub fn bars(title: &str, unit: &str, bars: &[Bar], log: bool) -> String {
    let shown: Vec<&Bar> = bars
        .iter()
        .filter(|b| b.figure.median.is_finite())
        .collect();
    let most = shown.iter().map(|b| b.figure.high).fold(0.0, f64::max);
    let least = shown
        .iter()
        .map(|b| b.figure.low)
        .filter(|v| *v > 0.0)
        .fold(f64::INFINITY, f64::min);
    // A decade below the least, so that the shortest bar is seen.
    let bottom = (least.log10() - 0.5).floor();
    let x = |value: f64| {
        let part = if log {
            (value.max(1e-12).log10() - bottom) / (most.log10() - bottom)
        } else {
            value / most
        };
        LEFT + PLOT * part.clamp(0.0, 1.0)
    };
    let height = TOP + ROW * shown.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\
         <title>{0}</title><style>{STYLE}</style><text class=\"t\" x=\"8\" y=\"22\">{0}</text>",
        escape(title)
    );
    for (i, bar) in shown.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let (end, low, high) = (x(bar.figure.median), x(bar.figure.low), x(bar.figure.high));
        let class = match bar.role {
            Role::Floor => "floor",
            Role::Us => "us",
            Role::Peer => "peer",
        };
        let middle = y + 9.0;
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>\
             <path class=\"w\" fill=\"none\" d=\"M{low:.1} {middle}H{high:.1}M{low:.1} {}v8M{high:.1} {}v8\"/>\
             <text class=\"n\" x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8.0,
            y + 13.5,
            escape(&bar.label),
            (end - LEFT).max(1.0),
            middle - 4.0,
            middle - 4.0,
            high.max(end) + 8.0,
            y + 13.5,
            number(bar.figure.median),
        );
    }
    let bottom_line = TOP + ROW * shown.len() as f64;
    let scale = if log { ", logarithmic scale" } else { "" };
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {}V{bottom_line}\"/><text class=\"n\" x=\"8\" y=\"{}\">{}{scale}; bar: median, whisker: quartiles; \
         grey: floor, blue: syncguard, ochre: peers</text></svg>",
        TOP - 6.0,
        bottom_line + 20.0,
        escape(unit),
    );
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

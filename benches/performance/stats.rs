//! Medians and their spread.

/// What several rounds gave: the median, and the quartiles as its spread.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Figure {
    pub fn of(values: &[f64]) -> Self {
        let values = sorted(values.to_vec());
        Self {
            median: at(&values, 0.5),
            low: at(&values, 0.25),
            high: at(&values, 0.75),
        }
    }

    /// A ratio near 1, to the thousandth.
    pub fn show3(&self) -> String {
        format!("{:.3} [{:.3}–{:.3}]", self.median, self.low, self.high)
    }

    /// With as many digits as a reader can use.
    pub fn show(&self) -> String {
        format!(
            "{} [{}–{}]",
            number(self.median),
            number(self.low),
            number(self.high)
        )
    }
}

/// The median of the quotients of each round: what disturbs a round disturbs both of its sides.
pub fn ratio(over: &[f64], under: &[f64]) -> Figure {
    let quotients: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
    Figure::of(&quotients)
}

/// The median of the differences of each round.
pub fn difference(from: &[f64], less: &[f64]) -> Figure {
    let differences: Vec<f64> = from.iter().zip(less).map(|(a, b)| a - b).collect();
    Figure::of(&differences)
}

pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => {
            let whole = format!("{value:.0}");
            let (head, tail) = whole.split_at(whole.len() - 3);
            return match head.len() {
                0..=3 => format!("{head} {tail}"),
                n => format!("{} {} {tail}", &head[..n - 3], &head[n - 3..]),
            };
        }
        v if v >= 100.0 || value.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which `part` of the sorted values lie; not a number if there are none.
pub fn at(values: &[f64], part: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values[((values.len() - 1) as f64 * part).round() as usize]
}

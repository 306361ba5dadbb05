//! The page: printed while it grows, written when it is done.

use std::path::Path;

#[derive(Default)]
pub struct Page {
    text: String,
    charts: Vec<(String, String)>,
    pub troubles: Vec<String>,
    pub missing: Vec<String>,
}

impl Page {
    pub fn heading(&mut self, level: usize, title: &str) {
        println!("\n{title}\n{}", "=".repeat(title.chars().count()));
        self.text
            .push_str(&format!("\n{} {title}\n", "#".repeat(level)));
    }

    pub fn prose(&mut self, text: &str) {
        println!("{text}");
        self.text.push_str(&format!("\n{text}\n"));
    }

    pub fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        let widths: Vec<usize> = (0..columns.len())
            .map(|i| {
                let cells = rows.iter().filter_map(|r| r.get(i));
                cells
                    .map(|c| c.chars().count())
                    .chain([columns[i].chars().count()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |cells: Vec<&str>| {
            cells
                .iter()
                .zip(&widths)
                .map(|(c, w)| format!("{c}{}", " ".repeat(w - c.chars().count())))
                .collect::<Vec<_>>()
        };
        println!("  {}", line(columns.to_vec()).join("  ").trim_end());
        for row in rows {
            println!(
                "  {}",
                line(row.iter().map(String::as_str).collect())
                    .join("  ")
                    .trim_end()
            );
        }
        self.text.push_str(&format!(
            "\n| {} |\n|{}\n",
            columns.join(" | "),
            "---|".repeat(columns.len())
        ));
        for row in rows {
            self.text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
    }

    pub fn chart(&mut self, name: &str, alt: &str, svg: String) {
        self.text
            .push_str(&format!("\n![{alt}](charts/{name}.svg)\n"));
        self.charts.push((name.to_owned(), svg));
    }

    pub fn trouble(&mut self, what: String) {
        eprintln!("TROUBLE: {what}");
        self.troubles.push(what);
    }

    pub fn write(&self, docs: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(docs.join("charts"))?;
        std::fs::write(docs.join("performance.md"), self.text.trim_start())?;
        for (name, svg) in &self.charts {
            std::fs::write(docs.join("charts").join(format!("{name}.svg")), svg)?;
        }
        Ok(())
    }
}

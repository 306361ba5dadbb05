//! As much of the two protocols as tells where an answer ends and whether it is a good one.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Postgres,
}

impl Protocol {
    /// How many whole answers these bytes hold: replies of Redis, `ReadyForQuery` of Postgres.
    pub fn answers(self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut count = 0;
        match self {
            Self::Redis => {
                while let Some(used) = skip_reply(rest) {
                    rest = &rest[used..];
                    count += 1;
                }
            }
            Self::Postgres => {
                while let Some((kind, used)) = message(rest) {
                    rest = &rest[used..];
                    count += usize::from(kind == b'Z');
                }
            }
        }
        count
    }

    /// Whether a reply is the good one.
    pub fn check(self, bytes: &[u8], redis: &[u8]) -> Result<(), String> {
        let good = match self {
            Self::Redis => bytes.starts_with(redis),
            Self::Postgres => {
                let mut rest = bytes;
                let mut good = true;
                while let Some((kind, used)) = message(rest) {
                    rest = &rest[used..];
                    good &= kind != b'E';
                }
                good
            }
        };
        if good {
            return Ok(());
        }
        Err(format!(
            "the floor was refused: {}",
            String::from_utf8_lossy(bytes)
        ))
    }
}

/// The length of the reply at the beginning, if it is whole.
fn skip_reply(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|w| w == b"\r\n")? + 2;
    let number = || {
        std::str::from_utf8(&bytes[1..line - 2])
            .ok()?
            .parse::<i64>()
            .ok()
    };
    match bytes[0] {
        b'$' => {
            let n = usize::try_from(number()?).map_or(0, |n| n + 2);
            (bytes.len() >= line + n).then_some(line + n)
        }
        b'*' => {
            let mut used = line;
            for _ in 0..number()?.max(0) {
                used += skip_reply(bytes.get(used..)?)?;
            }
            Some(used)
        }
        _ => Some(line),
    }
}

fn message(bytes: &[u8]) -> Option<(u8, usize)> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize + 1;
    (bytes.len() >= length).then_some((bytes[0], length))
}

/// The process that Postgres names at the start.
pub fn process(bytes: &[u8]) -> Option<[u8; 4]> {
    let mut rest = bytes;
    while let Some((kind, used)) = message(rest) {
        if kind == b'K' {
            return rest.get(5..9)?.try_into().ok();
        }
        rest = &rest[used..];
    }
    None
}

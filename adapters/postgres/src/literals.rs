//! Puts values in the place of parameters: the simple protocol has none, and it alone carries a whole transaction in one round trip.

use std::fmt::Write as _;

use syncguard::format::postgres::Param;
use syncguard::{ErrorCode, LockError};

/// `statement` with its parameters put in. What stands in quotes is a name or a text, and no parameter.
pub(crate) fn filled(statement: &str, params: &[Param<'_>]) -> Result<String, LockError> {
    let mut out = String::with_capacity(statement.len() + 128);
    let mut rest = statement;
    while let Some(at) = rest.find(['$', '"', '\'']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix('$') {
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number: usize = after[..digits].parse().map_err(|_| misfit())?;
            let param = number.checked_sub(1).and_then(|n| params.get(n));
            literal(param.ok_or_else(misfit)?, &mut out)?;
            rest = &after[digits..];
        } else {
            // A doubled quote ends one section and begins the next.
            let quote = &from[..1];
            let end = from[1..].find(quote).ok_or_else(misfit)? + 2;
            out.push_str(&from[..end]);
            rest = &from[end..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn literal(param: &Param<'_>, out: &mut String) -> Result<(), LockError> {
    match param {
        // In brackets: a minus sign would bind less than what follows.
        Param::Int8(n) => write!(out, "({n})").map_err(|_| misfit()),
        Param::Text(text) if text.contains('\0') => Err(misfit()),
        Param::Text(text) => {
            // This form has one meaning, whatever standard_conforming_strings says.
            out.push_str(" E'");
            for c in text.chars() {
                if matches!(c, '\'' | '\\') {
                    out.push(c);
                }
                out.push(c);
            }
            out.push('\'');
            Ok(())
        }
        _ => Err(misfit()),
    }
}

fn misfit() -> LockError {
    LockError::new(
        ErrorCode::Internal,
        "a statement that cannot be put together",
    )
    .nothing_applied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_parameters_stood() {
        let params = [Param::Text(r"it's \ $2"), Param::Int8(-7)];
        let sql = r#"SELECT "a$1""b".f($1::text, '$2', $2::int8) -- "#;
        assert_eq!(
            filled(sql, &params).expect("a statement"),
            r#"SELECT "a$1""b".f( E'it''s \\ $2'::text, '$2', (-7)::int8) -- "#
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for bad in ["$1", "$0", "$", "\"a", "'"] {
            assert!(filled(bad, &[]).is_err(), "{bad}");
        }
        assert!(filled("$1", &[Param::Text("a\0b")]).is_err());
        assert_eq!(filled("SELECT 1", &[]).expect("a statement"), "SELECT 1");
    }
}

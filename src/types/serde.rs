//! The values with rules of their own, for the feature `serde`: what is read is checked as it is where it enters otherwise. It uses
//! `fence`, `key`, `lock_id` and `ttl`.

use std::borrow::Cow;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::fence::Fence;
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;

/// The normalised text.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// From any text; it is normalised and checked, as by [`Key::new`].
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(D::Error::custom)
    }
}

/// The raw 22 characters, for handing a lock to another process. **A program that reads them can release the lock**: keep them out of
/// logs.
impl Serialize for LockId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// From its 22 characters; others are refused and not repeated in the message.
impl<'de> Deserialize<'de> for LockId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// The number. It is below 2^53, so that every reader of JSON keeps all of it.
impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

/// From the number; one with more than 15 digits is refused.
impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The milliseconds.
impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.as_millis())
    }
}

/// From the milliseconds; zero and more than ten years are refused.
impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = u64::deserialize(deserializer)?;
        Self::new(Duration::from_millis(ms)).map_err(D::Error::custom)
    }
}

/// The text. It is raw data: any program that can write to the store can write any text.
impl Serialize for HolderText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// From a text; one that is too long or cannot be shown is refused.
impl<'de> Deserialize<'de> for HolderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        Self::new(&*text).map_err(D::Error::custom)
    }
}

//! A bare Redis connection, for looking at the server and for filling it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::Protocol;

pub struct RedisSession {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl RedisSession {
    pub fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).map_err(|e| format!("Redis: {e}"))?;
        // No batch takes near as long.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .map_err(|e| e.to_string())?;
        Ok(Self {
            stream,
            buffer: vec![0; 256 * 1024],
        })
    }

    /// One command and its reply, as it came.
    pub fn call(&mut self, command: &[&str]) -> Result<String, String> {
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.send(request.as_bytes(), 1)
    }

    /// Loads a script; its digest.
    pub fn load(&mut self, script: &str) -> Result<String, String> {
        let reply = self.call(&["SCRIPT", "LOAD", script])?;
        match reply.split("\r\n").nth(1) {
            Some(digest) if digest.len() == 40 => Ok(digest.to_owned()),
            _ => Err(format!("SCRIPT LOAD: {reply}")),
        }
    }

    /// Requests as they go over the wire, and as many replies; an error if the first of them is one.
    pub fn send(&mut self, requests: &[u8], replies: usize) -> Result<String, String> {
        self.stream.write_all(requests).map_err(|e| e.to_string())?;
        let mut reply = Vec::new();
        while Protocol::Redis.answers(&reply) < replies {
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err("Redis hung up".to_owned()),
                Ok(n) => reply.extend_from_slice(&self.buffer[..n]),
                Err(e) => return Err(format!("Redis: {e}")),
            }
        }
        let reply = String::from_utf8_lossy(&reply).into_owned();
        if reply.starts_with('-') {
            return Err(format!("Redis: {}", reply.trim_end()));
        }
        Ok(reply)
    }
}

//! Systems whose devices are not known here.

use std::io;

use super::{DeviceConfig, DeviceError};

/// A device; there is none.
#[derive(Debug)]
pub enum Device {}

impl Device {
    /// Makes the device.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`].
    pub fn open(_: &DeviceConfig) -> Result<Self, DeviceError> {
        Err(DeviceError::Unsupported)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match *self {}
    }

    /// Sets the longest packet.
    ///
    /// # Errors
    /// None.
    pub fn set_mtu(&self, _: usize) -> io::Result<()> {
        match *self {}
    }

    /// Reads packets.
    ///
    /// # Errors
    /// None.
    pub async fn read(&self, _: &mut [u8], _: impl FnMut(&mut [u8])) -> io::Result<()> {
        match *self {}
    }

    /// Gives the kernel a packet.
    ///
    /// # Errors
    /// None.
    pub fn write(&self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }
}

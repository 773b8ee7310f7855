//! The version of Windows.

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;

/// Such as `10.0.19045`; the true one, whatever the program's manifest says.
pub fn windows_version() -> Option<String> {
    let mut info = OSVERSIONINFOW {
        dwOSVersionInfoSize: u32::try_from(size_of::<OSVERSIONINFOW>()).ok()?,
        ..OSVERSIONINFOW::default()
    };
    // SAFETY: the pointer is to a structure of the size that it names.
    let status = unsafe { RtlGetVersion(&raw mut info) };
    (status == 0).then(|| {
        format!(
            "{}.{}.{}",
            info.dwMajorVersion, info.dwMinorVersion, info.dwBuildNumber
        )
    })
}

//! The `postrider` program. Everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    postrider_relay::main()
}

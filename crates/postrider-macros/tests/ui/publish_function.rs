#![allow(unused_variables, dead_code)]

use postrider_macros::publish;

struct Tx;

#[publish(event_type = "OrderPlaced")]
fn not_async(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced")]
async fn no_transaction(transaction: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", tx = connection)]
async fn no_such_parameter(tx: &mut Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced")]
async fn transaction_by_value(tx: Tx) -> Result<u8, String> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced")]
async fn no_result(tx: &mut Tx) {}

#[publish(event_type = "OrderPlaced")]
struct NoFunction;

trait Desk {
    #[publish(event_type = "OrderPlaced")]
    async fn no_body(tx: &mut Tx) -> Result<u8, String>;
}

fn main() {}

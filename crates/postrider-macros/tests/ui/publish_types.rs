#![allow(unused_variables, dead_code)]

extern crate postrider_core as postrider;

use postrider_macros::publish;

struct Tx;

impl Tx {
    async fn write(&mut self, _: impl postrider::IntoEvent) -> postrider::Result<()> {
        Ok(())
    }

    async fn write_all(&mut self, _: Vec<impl postrider::IntoEvent>) -> postrider::Result<()> {
        Ok(())
    }
}

struct Order;

struct OwnError;

#[publish(event_type = "OrderPlaced")]
async fn value_that_cannot_be_serialised(tx: &mut Tx) -> Result<Order, postrider::Error> {
    Ok(Order)
}

#[publish(event_type = "OrderPlaced")]
async fn error_that_cannot_hold_postriders(tx: &mut Tx) -> Result<u8, OwnError> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced", each)]
async fn each_of_no_list(tx: &mut Tx) -> Result<u8, postrider::Error> {
    Ok(1)
}

#[publish(event_type = "OrderPlaced")]
async fn no_result(tx: &mut Tx) -> u8 {
    1
}

#[publish(event_type = "OrderPlaced")]
async fn no_transaction_of_postriders(tx: &mut String) -> Result<u8, postrider::Error> {
    Ok(1)
}

fn main() {}

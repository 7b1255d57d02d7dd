use postrider_macros::EventType;

#[derive(EventType)]
enum Order {
    #[event_type(name = "")]
    Placed,
    #[event_type(name = " \t")]
    Shipped,
    #[event_type(name = "nul\0")]
    Lost,
}

fn main() {}

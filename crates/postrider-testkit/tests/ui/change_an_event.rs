use postrider::Event;

fn main() {
    let event = Event::json_text("OrderPlaced", "{}").build().unwrap();
    event.headers().insert("late".to_owned(), "change".to_owned());
}

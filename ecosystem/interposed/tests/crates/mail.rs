//! `lettre` sends mails over SMTP.

use cringle_ecosystem_interposed::{MailSink, at_most, crowd};
use lettre::{Message, SmtpTransport, Transport};

#[test]
fn lettre_waits_only_its_fiber() {
    let jobs = at_most(1000);
    let sink = MailSink::start();
    let port = sink.port();
    crowd("lettre", jobs, move |n, waits| {
        let mail = Message::builder()
            .from("fiber@example.org".parse().unwrap())
            .to("sink@example.org".parse().unwrap())
            .subject(format!("mail {n}"))
            .body(format!("line {n}\n").repeat(n % 50 + 1))
            .unwrap();
        let transport = SmtpTransport::builder_dangerous("127.0.0.1").port(port).build();
        let answer = waits.during(|| transport.send(&mail).unwrap());
        assert_eq!(answer.first_line(), Some("accepted"));
    });
    let mails = sink.mails();
    for n in 0..jobs {
        let subject = format!("Subject: mail {n}\n");
        let mail = mails.iter().find(|mail| mail.contains(&subject)).unwrap();
        assert_eq!(mail.lines().filter(|line| *line == format!("line {n}")).count(), n % 50 + 1);
    }
    assert_eq!(mails.len(), jobs);
}

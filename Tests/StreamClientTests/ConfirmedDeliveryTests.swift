import StreamProtocol
import Testing

@testable import StreamClient

@Suite struct ConfirmedDeliveryTests {
  @Test(arguments: [
    (PublishConfirmation(confirmed: 0, next: 3), ReconnectPolicy.Report.forgotten),
    (PublishConfirmation(confirmed: 2, next: 3), .resumed(missing: nil)),
  ]) func aStreamThatDiscardedThePublisherIsReported(
    answer: PublishConfirmation, report: ReconnectPolicy.Report
  ) throws {
    var delivery = ConfirmedDelivery(PublisherName("p"))
    var waiting: ArraySlice<[UInt8]> = []
    let greeting = delivery.receive(PublishConfirmation(confirmed: 0, next: 1).bytes, &waiting)
    #expect(greeting == .greeted(nil))
    delivery.send([[1], [2], [3]])
    let confirmation = delivery.receive(PublishConfirmation(confirmed: 2).bytes, &waiting)
    #expect(confirmation == .confirmed)
    let retry = delivery.retry(after: .disconnected("gone"), isRefused: false, fraction: 0, &waiting)
    #expect(retry != nil)
    #expect(waiting == [[3]])
    let entry = try delivery.entry
    #expect(entry.firstNumber == 3)
    let news = delivery.receive(answer.bytes, &waiting)
    #expect(news == .greeted(report))
  }
}

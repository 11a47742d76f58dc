import Events
import Reactive
import TestSupport
import Testing

@testable import StreamSources

/// The removal of what is not JSON, on this thread.
@Suite struct ValidJSONTests {
  private let reports = Shared<[PipelineReport]>([])

  /// Subscribes, and passes each batch on.
  /// - Parameter form: by default, JSON is required.
  /// - Returns: what the operator asks for in return, and what it passes on.
  private func pass(
    _ batches: [EventBatch], as form: ReceivedForm = ReceivedForm(requiresJSON: true), keepsPosition: Bool = false
  ) -> (demand: [Subscribers.Demand?], passed: [EventBatch]) {
    let source = ScriptedSource()
    let passed = Shared<[EventBatch]>([])
    let sink = source.received(as: form, keepsPosition: keepsPosition) { [reports] report in
      reports.withLock { $0.append(report) }
    }.sink { batch in passed.withLock { $0.append(batch) } }
    defer { sink.cancel() }
    let demand = batches.map { source.now.subscriber?.receive($0) }
    return (demand, passed.withLock { $0 })
  }

  private func batch(_ events: [String], _ checkpoint: UInt8? = nil) -> EventBatch {
    var batch = EventBatch(events.map { Array($0.utf8) })
    batch.checkpoint = checkpoint.flatMap { Checkpoint([$0]) }
    return batch
  }

  @Test func onlyJSONPassesAndTheRestIsCounted() {
    let (_, passed) = pass([
      batch(["1", "<html>", "{\"a\":[]}", "{\"a\":"]), batch(["", "\u{FEFF}1", "[1] 2"]), batch(["null"]),
      batch(["true"]),
    ])
    #expect(passed == [batch(["1", "{\"a\":[]}"]), batch(["null"]), batch(["true"])])
    #expect(
      reports.withLock { $0 } == [
        .malformed(2, "it is cut off"),
        .malformed(2, "more than one JSON text; split = \"json\" of a source makes an event of each"), .passing,
      ])
  }

  @Test(arguments: [
    (ReceivedForm(), [" ", "\n", "1"]), (ReceivedForm(isJSON: true), ["1"]), (ReceivedForm(requiresJSON: true), ["1"]),
    (ReceivedForm(isJSON: true, requiresJSON: true), ["1"]), (ReceivedForm(splitsTexts: true), ["1"]),
  ])
  func nothingIsNoEventAndInJSONNeitherIsWhiteSpace(form: ReceivedForm, expected: [String]) {
    let (demand, passed) = pass([batch([""]), batch(["", " ", "\n", "1"], 1), batch([], 2)], as: form)
    #expect(demand[0] == .max(1))
    #expect(passed == [batch(expected, 1), batch([], 2)])
    let isRefused = form.requiresJSON && !form.isJSON
    #expect(reports.withLock { $0.isEmpty } != isRefused)
  }

  @Test func eachTextOfAMessageIsAnEvent() {
    let (_, passed) = pass(
      [
        batch(["{\"a\":1}\u{1e}{\"a\":2}\u{1e}", "1\n2\n", "[]"], 7), batch(["\u{1e}"]),
        batch([String(repeating: "1 ", count: JSONSyntax.mostTexts + 1), "{}"]), batch(["{\"t\":12\0}34}\n[1]"]),
      ], as: ReceivedForm(isJSON: true, splitsTexts: true))
    #expect(
      passed == [
        batch(["{\"a\":1}", "{\"a\":2}", "1", "2", "[]"], 7), batch(["{}"]), batch(["{\"t\":12\0}34}", "[1]"]),
      ])
    #expect(reports.withLock { $0 } == [.failedEvent("more than 65536 JSON texts at once")])
  }

  @Test func aBatchThatBecomesEmptyPassesItsCheckpointAtOnce() {
    let (demand, passed) = pass([batch(["x"], 1), batch(["y"]), batch(["1"])])
    #expect(demand[1] == .max(1))
    #expect(passed == [batch([], 1), batch(["1"])])
  }

  @Test func aBatchThatBecomesEmptyMayPassItsCheckpointToTheNextEvent() {
    let (demand, passed) = pass(
      [batch(["x"], 1), batch(["y"]), batch(["1"]), batch(["2", "z"], 2), batch(["3"], 3), batch(["4"])],
      keepsPosition: true)
    #expect(demand[0] == .max(1) && demand[1] == .max(1))
    #expect(passed == [batch(["1"], 1), batch(["2"], 2), batch(["3"], 3), batch(["4"])])
  }

  @Test func aBatchWithAGoodLastEventHasRecovered() {
    _ = pass([batch(["x", "1"])])
    #expect(reports.withLock { $0 } == [.malformed(1, "'x' at byte 1"), .passing])
  }
}

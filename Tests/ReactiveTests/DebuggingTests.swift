import Reactive
import Testing

@Suite struct DebuggingTests {
  private struct Lines: TextOutputStream {
    final class Text { var text = "" }
    let store = Text()
    mutating func write(_ string: String) { store.text += string }
  }

  @Test func printWritesALinePerSignal() {
    let lines = Lines()
    let probe = Probe<Int, TestError>()
    let recorder = Recorder<Int, TestError>(.max(2)) { _, value in value == 1 ? .max(3) : .none }
    probe.print("p", to: lines).subscribe(recorder)
    probe.send(1)
    probe.send(2)
    recorder.request(.unlimited)
    probe.send(completion: .failure(TestError()))
    #expect(
      lines.store.text.split(separator: "\n").dropFirst() == [
        "p: request max: (2)", "p: receive value: (1)",
        "p: request max: (3) (synchronous)", "p: receive value: (2)", "p: request unlimited",
        "p: receive error: (TestError())",
      ])
    #expect(lines.store.text.hasPrefix("p: receive subscription: ("))
  }

  @Test func printWithoutAPrefixHasNoColon() {
    let lines = Lines()
    let subject = PassthroughSubject<Int, Never>()
    let sink = subject.print(to: lines).sink { _ in }
    sink.cancel()
    #expect(
      lines.store.text == "receive subscription: (PassthroughSubject)\nrequest unlimited\nreceive cancel\n")
  }

  @Test func printShowsTheNameOfTheOperatorBeforeIt() {
    func firstLine<P: Publisher>(_ publisher: P) -> String {
      let lines = Lines()
      publisher.print(to: lines).sink(receiveCompletion: { _ in }, receiveValue: { _ in }).cancel()
      return String(lines.store.text.prefix { $0 != "\n" })
    }
    #expect(firstLine([1, 2].publisher) == "receive subscription: ([1, 2])")
    let numbers = [1, 2].publisher.eraseToAnyPublisher()
    #expect(firstLine(numbers.filter { $0 > 1 }) == "receive subscription: (Filter)")
    #expect(firstLine(numbers.zip(numbers)) == "receive subscription: (Zip)")
    #expect(firstLine(numbers.receive(on: ImmediateScheduler.shared)) == "receive subscription: (ReceiveOn)")
    #expect(firstLine(numbers.count()) == "receive subscription: (Count)")
    #expect(firstLine(Publishers.timer(interval: .seconds(9))) == "receive subscription: (DispatchTimer)")
  }

  @Test func printedLinesMayCallBack() {  // row 18
    final class Loop: @unchecked Sendable { var send: (String) -> Void = { _ in } }
    struct Echo: TextOutputStream {
      let loop: Loop
      mutating func write(_ string: String) { loop.send(string) }
    }
    let loop = Loop()
    let subject = PassthroughSubject<Int, Never>()
    var seen: [String] = []
    loop.send = { line in
      seen.append(line)
      if line.contains("(1)") { subject.send(2) }
    }
    let sink = subject.print(to: Echo(loop: loop)).sink { _ in }
    subject.send(1)
    sink.cancel()
    #expect(seen.filter { $0.contains("value") } == ["receive value: (1)\n", "receive value: (2)\n"])
  }

  @Test func breakpointRaisesSIGTRAPWhenAClosureReturnsTrue() async {
    let sink = [1, 2].publisher.breakpoint(receiveOutput: { $0 > 2 }).sink { _ in }
    sink.cancel()
    await #expect(processExitsWith: .signal(5)) {
      _ = [1, 2].publisher.breakpoint(receiveOutput: { $0 == 2 }).sink { _ in }
    }
    await #expect(processExitsWith: .signal(5)) {
      _ = Fail<Int, TestError>(error: TestError()).breakpointOnError().sink(
        receiveCompletion: { _ in }, receiveValue: { _ in })
    }
  }
}

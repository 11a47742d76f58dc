import TestSupport
import Testing

@testable import StreamSources
@testable import streamd

/// Which request is made when, and what becomes of it.
@Suite struct AnswerMachineTests {
  private typealias Action = AnswerMachine.Action

  private func machine(limit: Int, _ names: [String] = []) -> AnswerMachine {
    var machine = AnswerMachine()
    #expect(machine.setLimit(limit, of: "t") == [])
    for (number, name) in names.enumerated() { machine.add(name, of: "t", number: UInt64(number)) }
    return machine
  }

  @Test func aRequestIsSentOnlyAfterItIsStoredThatItIs() {
    var machine = machine(limit: 1, ["a"])
    #expect(machine.ask("a") == [.begin("a")])
    #expect(machine.phase(of: "a") == .ready && machine.ask("b") == [.end("b")])
    #expect(machine.answered("b", failure: nil) == [] && machine.send("b") == [.end("b")])
    #expect(machine.send("a") == [.mark("a")] && machine.phase(of: "a") == .marking)
    #expect(machine.marked("a", failure: nil) == [.send("a")])
    #expect(machine.answered("a", failure: nil) == [] && machine.phase(of: "a") == .closing(failure: nil))
    #expect(machine.ended("a") == [.store("a")] && machine.phase(of: "a") == .ended(failure: nil))
    #expect(machine.ask("a") == [.end("a")], "a source that begins again makes no request")
  }

  @Test func whatCannotBeStoredIsNotSent() {
    var machine = machine(limit: 1, ["a", "b"])
    _ = machine.ask("a")
    #expect(machine.ask("b") == [])
    _ = machine.send("a")
    #expect(machine.marked("a", failure: "no") == [.begin("b"), .end("a")])
    #expect(machine.phase(of: "a") == .closing(failure: "no"))
  }

  @Test func aRequestThatHasFailedBeforeItIsSentEnds() {
    var machine = machine(limit: 1, ["a", "b"])
    for name in ["a", "b"] { _ = machine.ask(name) }
    #expect(machine.answered("a", failure: "no token") == [.begin("b")])
    #expect(machine.phase(of: "a") == .closing(failure: "no token"))
  }

  @Test func theRestWaitsInTheOrderOfTheRequests() {
    var machine = machine(limit: 2, ["a", "b", "c", "d", "e"])
    #expect(machine.ask("e") == [.begin("e")] && machine.ask("d") == [.begin("d")])
    for name in ["c", "a", "b"] { #expect(machine.ask(name) == []) }
    #expect(machine.remove("b") == [])
    _ = machine.send("e")
    _ = machine.marked("e", failure: nil)
    #expect(machine.answered("e", failure: "cut") == [.begin("a")])
    #expect(machine.setLimit(3, of: "t") == [.begin("c")])
  }

  @Test func aRequestThatIsGoneFreesItsPlace() {
    var machine = machine(limit: 1, ["a", "b", "c"])
    for name in ["a", "b", "c"] { _ = machine.ask(name) }
    _ = machine.send("a")
    #expect(machine.remove("a") == [.begin("b")])
    #expect(machine.marked("a", failure: nil) == [], "it is gone")
    _ = machine.send("b")
    _ = machine.marked("b", failure: nil)
    #expect(machine.remove("b") == [.begin("c")])
    #expect(machine.answered("b", failure: nil) == [] && machine.ended("b") == [])
  }

  @Test func anAnswerThatWaitsForAReaderKeepsNoPlace() {
    var machine = machine(limit: 1, ["a", "b", "c"])
    for name in ["a", "b", "c"] { _ = machine.ask(name) }
    _ = machine.send("a")
    _ = machine.marked("a", failure: nil)
    #expect(machine.note("a", waits: true) == [.begin("b")] && machine.note("a", waits: true) == [])
    // Its reader need not wait for a place, and has it from then on.
    #expect(machine.note("a", waits: false) == [])
    #expect(machine.answered("b", failure: "no") == [], "the place is that of the other one")
    #expect(machine.answered("a", failure: nil) == [.begin("c")])
    #expect(machine.note("a", waits: true) == [] && machine.remove("a") == [])
    #expect(machine.note("d", waits: true) == [])
  }

  @Test func aSourceThatReplacesAnotherOneBeginsBeforeTheRequestIsSent() {
    var machine = machine(limit: 1, ["a", "b"])
    for name in ["a", "b"] { _ = machine.ask(name) }
    #expect(machine.ask("a") == [.begin("a")])
    _ = machine.send("a")
    _ = machine.marked("a", failure: nil)
    #expect(machine.ask("a") == [.begin("b"), .end("a")])
    #expect(machine.phase(of: "a") == .closing(failure: "cut off by a change of the configuration"))
    #expect(machine.answered("a", failure: nil) == [], "what the first source says is too late")
  }

  /// Any sequence of inputs: no more than the limit begins at a time, each request is sent once at most, and in order.
  @Test(arguments: seeds(20)) func randomRunsObeyTheRules(seed: UInt64) {
    var random = SplitMix(seed: seed)
    var machine = machine(limit: 3)
    var known: [String] = []
    var (next, begun, sent, inLine, waits) = (0, Set<String>(), Set<String>(), Set<String>(), Set<String>())
    var places: Int {
      begun.count { [.ready, .marking, .answering].contains(machine.phase(of: $0)) && !waits.contains($0) }
    }
    func take(_ actions: [Action]) {
      for action in actions {
        switch action {
        case .begin(let name):
          guard begun.insert(name).inserted else { continue }  // for another source
          #expect(inLine.remove(name) != nil && inLine.allSatisfy { Int($0)! > Int(name)! }, "\(name) \(seed)")
          #expect(places <= 3, "\(seed)")
        case .mark(let name): #expect(begun.contains(name) && !sent.contains(name), "\(name) \(seed)")
        case .send(let name): #expect(sent.insert(name).inserted, "\(name) is sent twice, \(seed)")
        case .end, .store: break
        }
      }
    }
    for _ in 0..<4000 {
      let name = known.isEmpty ? "none" : known[Int(random.next() % UInt64(known.count))]
      switch random.next() % 8 {
      case 0:
        guard known.count < 10 else { continue }
        machine.add("\(next)", of: "t", number: UInt64(next))
        known.append("\(next)")
        next += 1
      case 1:
        if machine.phase(of: name) == .waiting { inLine.insert(name) }
        take(machine.ask(name))
      case 2: take(machine.send(name))
      case 3: take(machine.marked(name, failure: random.next() % 8 == 0 ? "full" : nil))
      case 4: take(machine.answered(name, failure: nil))
      case 5: take(machine.ended(name))
      case 6:
        guard machine.phase(of: name) == .answering else { continue }
        let isWaiting = random.next() % 2 == 0
        if isWaiting { waits.insert(name) } else { waits.remove(name) }
        take(machine.note(name, waits: isWaiting))
      default:
        let isOver = if case .ended = machine.phase(of: name) { true } else { false }
        guard isOver || random.next() % 8 == 0 else { continue }
        inLine.remove(name)
        known.removeAll { $0 == name }
        take(machine.remove(name))
      }
      #expect(inLine.isEmpty || places >= 3, "\(seed): a place is free, and \(inLine) wait")
    }
    #expect(sent.count > 10)
  }
}

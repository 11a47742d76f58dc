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

  @Test func aRequestIsMadeOnlyAfterItIsStoredThatItIs() {
    var machine = machine(limit: 1, ["a"])
    #expect(machine.ask("a") == [.mark("a")])
    #expect(machine.phase(of: "a") == .marking && machine.ask("b") == [.end("b")])
    #expect(machine.marked("a", failure: nil) == [.send("a")])
    #expect(machine.answered("a", failure: nil) == [] && machine.phase(of: "a") == .closing(failure: nil))
    #expect(machine.ended("a") == [.store("a")] && machine.phase(of: "a") == .ended(failure: nil))
    #expect(machine.ask("a") == [.end("a")], "a source that begins again makes no request")
  }

  @Test func whatCannotBeStoredIsNotMade() {
    var machine = machine(limit: 1, ["a", "b"])
    _ = machine.ask("a")
    #expect(machine.ask("b") == [])
    #expect(machine.marked("a", failure: "no") == [.mark("b"), .end("a")])
    #expect(machine.phase(of: "a") == .closing(failure: "no"))
  }

  @Test func theRestWaitsInTheOrderOfTheRequests() {
    var machine = machine(limit: 2, ["a", "b", "c", "d", "e"])
    #expect(machine.ask("e") == [.mark("e")] && machine.ask("d") == [.mark("d")])
    for name in ["c", "a", "b"] { #expect(machine.ask(name) == []) }
    #expect(machine.remove("b") == [])
    _ = machine.marked("e", failure: nil)
    #expect(machine.answered("e", failure: "cut") == [.mark("a")])
    #expect(machine.setLimit(3, of: "t") == [.mark("c")])
  }

  @Test func aRequestThatIsGoneFreesItsPlace() {
    var machine = machine(limit: 1, ["a", "b", "c"])
    for name in ["a", "b", "c"] { _ = machine.ask(name) }
    #expect(machine.remove("a") == [.mark("b")])
    #expect(machine.marked("a", failure: nil) == [], "it is gone")
    _ = machine.marked("b", failure: nil)
    #expect(machine.remove("b") == [.mark("c")])
    #expect(machine.answered("b", failure: nil) == [] && machine.ended("b") == [])
  }

  @Test func aSecondSourceOfAnAnswerCutsItOff() {
    var machine = machine(limit: 1, ["a", "b"])
    for name in ["a", "b"] { _ = machine.ask(name) }
    _ = machine.marked("a", failure: nil)
    #expect(machine.ask("a") == [.mark("b"), .end("a")])
    #expect(machine.phase(of: "a") == .closing(failure: "cut off by a change of the configuration"))
    #expect(machine.answered("a", failure: nil) == [], "what the first source says is too late")
  }

  /// Any sequence of inputs: no more than the limit at a time, each request made once at most, and in order.
  @Test(arguments: seeds(20)) func randomRunsObeyTheRules(seed: UInt64) {
    var random = SplitMix(seed: seed)
    var machine = machine(limit: 3)
    var (next, running, sent, ready) = (0, Set<String>(), Set<String>(), Set<String>())
    func take(_ actions: [Action]) {
      let marked = actions.compactMap { if case .mark(let name) = $0 { name } else { nil } }
      ready = ready.filter { machine.phase(of: $0) == .waiting || marked.contains($0) }
      running = running.filter { [.marking, .answering].contains(machine.phase(of: $0)) && !marked.contains($0) }
      for action in actions {
        switch action {
        case .mark(let name):
          #expect(running.insert(name).inserted && ready.contains(name) && !sent.contains(name), "\(name) \(seed)")
          let number = Int(name) ?? 0
          #expect(ready.allSatisfy { running.contains($0) || sent.contains($0) || Int($0) ?? 0 > number }, "\(seed)")
        case .send(let name): #expect(sent.insert(name).inserted, "\(name) is sent twice, \(seed)")
        case .end, .store: break
        }
      }
      #expect(running.count <= 3)
    }
    for _ in 0..<400 {
      let name = "\(Int(random.next() % UInt64(next + 1)))"
      switch random.next() % 6 {
      case 0:
        machine.add("\(next)", of: "t", number: UInt64(next))
        next += 1
      case 1:
        if machine.phase(of: name) == .waiting {
          ready.insert(name)
          take(machine.ask(name))
        }
      case 2: take(machine.marked(name, failure: random.next() % 8 == 0 ? "full" : nil))
      case 3: take(machine.answered(name, failure: nil))
      case 4: take(machine.ended(name))
      default:
        if random.next() % 4 == 0 {
          ready.remove(name)
          let actions = machine.remove(name)
          running.remove(name)
          take(actions)
        }
      }
      running = running.filter { [.marking, .answering].contains(machine.phase(of: $0)) }
      ready = ready.filter { machine.phase(of: $0) == .waiting || running.contains($0) }
    }
  }
}

import CSimulation
import Glibc

/// What one run has to say: to the process that began it, as lines on a pipe.
final class Report {
  nonisolated(unsafe) static let shared = Report()

  /// Where lines go.
  var descriptor: CInt = -1
  var isVerbose = false
  var events = 0
  var deliveries = 0
  var counts: [String: Int] = [:]
  /// The step that is under way.
  var step = 0

  func count(_ what: String, _ number: Int = 1) { counts[what, default: 0] += number }

  /// A line for people, in a run that describes what it does.
  func say(_ line: @autoclosure () -> String) {
    // A copy of the process writes it: the memory that it takes would change the order of addresses, and so the run.
    guard isVerbose, sim_copy() != 0 else { return }
    write("say \(line())")
    _exit(0)
  }

  func write(_ line: String) {
    let bytes = Array((line.map { $0 == "\n" ? " " : $0 } + "\n").utf8)
    var offset = 0
    while offset < bytes.count {
      let count = bytes.withUnsafeBytes { sim_real_write(descriptor, $0.baseAddress! + offset, bytes.count - offset) }
      guard count > 0 else { _exit(71) }
      offset += count
    }
  }

  private func tell(_ last: String) -> Never {
    count("events appended", events)
    count("events delivered", deliveries)
    count("threads switched in the middle", Int(sim_switches))
    for kind in 0..<Int(SIM_FAULTS) where fault(kind) > 0 {
      count("fault: \(Self.faultNames[kind])", fault(kind))
    }
    write("counts " + counts.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: "|"))
    write(last)
    _exit(0)
  }

  func end() -> Never { tell("passed \(sim_trace())") }

  func end(failing rule: String, _ details: String) -> Never { tell("failed \(step)|\(rule)|\(details)") }

  private func fault(_ kind: Int) -> Int {
    withUnsafeBytes(of: sim_fault_count) { Int($0.bindMemory(to: UInt64.self)[kind]) }
  }

  static let faultNames = [
    "short send", "interrupted send", "no buffers", "reset at a byte", "short read", "interrupted read",
    "reset while reading", "interrupted wait", "no more watches", "accept fails", "no memory file", "disk full",
    "sync fails", "write fails", "rename fails", "no socket pair", "no room for descriptors",
    "the manager keeps nothing", "late",
  ]
}

import CCurl
import CSimulation
import Glibc

/// `simulation [--seed S] [--steps N] [--seconds T] [--seeds COUNT] [--only STEPS] [--trace]`: see `Tests/Simulation/run`.
@main
struct Main {
  static func main() {
    // Takes longer than a run, and the runs have the process in that state.
    curl_global_init(Int(CURL_GLOBAL_DEFAULT))
    sim_prepare { Main.runOne() }
    setvbuf(stdout, nil, _IOLBF, 0)
    guard getenv("SWIFT_DETERMINISTIC_HASHING") != nil else {
      print("SWIFT_DETERMINISTIC_HASHING has to be set: without it no run can be repeated")
      exit(64)
    }
    var options = Options()
    do { options = try Options(CommandLine.arguments.dropFirst()) } catch {
      print(error.text)
      exit(64)
    }
    let isGood = Runner(options).run()
    sim_finish()
    exit(isGood ? 0 : 1)
  }

  /// In a process of its own, as `sim_request` says. Never returns.
  private static func runOne() {
    alarm(Runner.secondsPerRun * 10)
    var limit = itimerval(
      it_interval: timeval(), it_value: timeval(tv_sec: Int(Runner.secondsPerRun), tv_usec: 0))
    setitimer(CInt(ITIMER_PROF.rawValue), &limit, nil)
    let folder = withUnsafeBytes(of: sim_request.folder) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    let (seed, count) = (sim_request.seed, Int(sim_request.step_count))
    sim_begin(seed, folder)
    let report = Report.shared
    report.descriptor = 2
    report.isVerbose = sim_request.is_verbose != 0
    if report.isVerbose { sim_journal = { Report.shared.say("journal: \(String(cString: $0!))") } }
    let steps = (0..<count).map { Int(sim_step(Int32($0))) }
    World(seed: seed, folder: folder).run(steps)
  }
}

struct Options {
  struct Mistake: Error { let text: String }

  var seed: UInt64 = 1
  var steps = 1500
  var seconds: Int?
  var seeds: Int?
  var only: [Int]?
  var isTrace = false
  var jobs = max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))
  var shrinks = true
  /// Whether the runs continue after a failure.
  var continues = false

  init() {}

  init(_ arguments: some Sequence<String>) throws(Mistake) {
    var rest = Array(arguments)[...]
    while let option = rest.popFirst() {
      if option == "--trace" {
        isTrace = true
        continue
      }
      if option == "--no-shrinking" {
        shrinks = false
        continue
      }
      if option == "--continue" {
        continues = true
        continue
      }
      guard let value = rest.popFirst() else { throw Mistake(text: "unknown option or no value: \(option)") }
      if option == "--only" {
        let numbers = value.split(separator: ",").map { Int($0) }
        guard numbers.allSatisfy({ $0 != nil }) else { throw Mistake(text: "--only takes numbers of steps: \(value)") }
        only = numbers.compactMap { $0 }
        continue
      }
      guard let number = Int(value), number >= 0 else { throw Mistake(text: "\(option) takes a number: \(value)") }
      switch option {
      case "--seed": seed = UInt64(number)
      case "--steps": steps = number
      case "--seconds": seconds = number
      case "--seeds": seeds = number
      case "--jobs": jobs = max(1, number)
      default: throw Mistake(text: "unknown option: \(option)")
      }
    }
  }
}

/// What came of one run.
struct Outcome {
  enum Verdict: Equatable {
    case passed(trace: String)
    case failed(step: Int, rule: String, details: String)
  }
  let seed: UInt64
  let verdict: Verdict
  let counts: [String: Int]
  let lines: [String]

  var rule: String? { if case .failed(_, let rule, _) = verdict { rule } else { nil } }
}

/// Runs seeds, each in a process of its own, and makes those that fail as short as they can be.
final class Runner {
  private struct Child {
    let seed: UInt64
    /// The number of the process that does it.
    let index: Int32
    let folder: String
  }

  private let options: Options
  private let folder: String
  private var counts: [String: Int] = [:]
  private var runs = 0
  private var failures = 0
  private var idle = Array(0..<Int32(sim_runner_count()))
  /// The time of the runs so far.
  private var microsecondsOfRuns: UInt64 = 0

  /// The time for which this process and the runs have had a processor: the same on a loaded machine, unlike the clock's.
  private var processorSeconds: Int {
    var own = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own)
    return own.tv_sec + Int(microsecondsOfRuns / 1_000_000)
  }

  /// A run that takes so much of the processor hangs; or ten times that of the clock.
  fileprivate static let secondsPerRun: UInt32 = 60

  init(_ options: Options) {
    self.options = options
    var name = Array("\(getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp")/simulation-XXXXXX".utf8CString)
    guard mkdtemp(&name) != nil else { fatalError("no temporary folder") }
    folder = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { rmdir(folder) }

  /// - Returns: whether all passed.
  func run() -> Bool {
    defer { rmdir(folder) }
    if options.isTrace || options.only != nil {
      let outcome = finish(begin(options.seed, options.only ?? Array(0..<options.steps), isVerbose: true))
      outcome.lines.forEach { print($0) }
      tell(outcome)
      return outcome.rule == nil
    }
    let start = processorSeconds
    var next = options.seed
    var running: [Child] = []
    var traces: [UInt64: String] = [:]
    var failure: Outcome?
    /// Every sixteenth seed runs twice.
    var again: [UInt64] = []
    func isOver() -> Bool {
      if failure != nil { return true }
      if let seconds = options.seconds { return processorSeconds - start >= seconds }
      return next >= options.seed + UInt64(options.seeds ?? 1)
    }
    let all = Array(0..<options.steps)
    if options.seeds == nil, options.seconds == nil { again = [options.seed] }
    while true {
      while running.count < options.jobs, !idle.isEmpty {
        if let seed = again.popLast() {
          running.append(begin(seed, all))
        } else if !isOver() {
          running.append(begin(next, all))
          if next % 16 == 0 { again.append(next) }
          next += 1
        } else {
          break
        }
      }
      guard !running.isEmpty else { break }
      let child = running.remove(at: waitForOne(running))
      let outcome = finish(child)
      runs += 1
      counts.merge(outcome.counts) { $0 + $1 }
      switch outcome.verdict {
      case .failed where options.continues:
        failures += 1
        tell(outcome)
      case .failed: failure = failure ?? outcome
      case .passed(let trace):
        if let former = traces[outcome.seed], former != trace {
          print("seed \(outcome.seed) had the trace \(former) first, and \(trace) then")
          return false
        }
        traces[outcome.seed] = trace
      }
    }
    let elapsed = max(1, processorSeconds - start)
    if failure == nil { summarize(seconds: elapsed) }
    guard let failure else { return failures == 0 }
    tell(failure)
    print("found after \(elapsed) s of processor time and \(runs) runs")
    if options.shrinks { shrink(failure) }
    return false
  }

  private func tell(_ outcome: Outcome) {
    switch outcome.verdict {
    case .passed(let trace): print("seed \(outcome.seed): passed, trace \(trace)")
    case .failed(let step, let rule, let details):
      print("seed \(outcome.seed) fails at step \(step): \(rule): \(details)")
    }
  }

  private func summarize(seconds: Int) {
    let steps = runs * options.steps
    print(
      "\(runs) runs of \(options.steps) steps in \(seconds) s of processor time, \(steps / seconds) steps per second, "
        + "\(failures) failures")
    for (what, count) in counts.sorted(by: { $0.key < $1.key }) { print("  \(what): \(count)") }
  }

  // MARK: One run

  private func begin(_ seed: UInt64, _ steps: [Int], isVerbose: Bool = false) -> Child {
    var name = Array("\(folder)/XXXXXX".utf8CString)
    guard mkdtemp(&name) != nil else { fatalError("no temporary folder") }
    let own = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    var request = sim_request()
    (request.seed, request.is_verbose, request.step_count) = (seed, isVerbose ? 1 : 0, Int32(steps.count))
    withUnsafeMutableBytes(of: &request.folder) { $0.copyBytes(from: own.utf8.prefix(199)) }
    let index = idle.removeLast()
    sim_ask(index, &request, steps.map { Int32($0) })
    return Child(seed: seed, index: index, folder: own)
  }

  private func waitForOne(_ children: [Child]) -> Int {
    var polled = children.map { pollfd(fd: sim_runner($0.index), events: Int16(POLLIN), revents: 0) }
    poll(&polled, nfds_t(polled.count), -1)
    return polled.firstIndex { $0.revents != 0 } ?? 0
  }

  /// Waits for its end.
  private func finish(_ child: Child) -> Outcome {
    var microseconds: UInt64 = 0
    let status = sim_answer(child.index, &microseconds)
    microsecondsOfRuns += microseconds
    idle.append(child.index)
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    let file = open("\(child.folder).out", O_RDONLY)
    while case let count = read(file, &buffer, buffer.count), count > 0 { text += buffer[..<count] }
    close(file)
    for suffix in ["out", "http"] { unlink("\(child.folder).\(suffix)") }
    removeFolder(child.folder)
    var counts: [String: Int] = [:]
    var lines: [String] = []
    var errors: [String] = []
    var verdict: Outcome.Verdict?
    var step = 0
    for line in String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init) {
      if line.hasPrefix("say ") {
        lines.append(String(line.dropFirst(4)))
        if line.hasPrefix("say step "), let number = Int(line.dropFirst(9).prefix { $0 != " " }) { step = number }
      } else if line.hasPrefix("counts ") {
        for pair in line.dropFirst(7).split(separator: "|") {
          let parts = pair.split(separator: "=")
          if parts.count == 2 { counts[String(parts[0])] = Int(parts[1]) }
        }
      } else if line.hasPrefix("passed ") {
        verdict = .passed(trace: String(line.dropFirst(7)))
      } else if line.hasPrefix("failed ") {
        let parts = line.dropFirst(7).split(separator: "|", maxSplits: 2).map(String.init)
        verdict = .failed(step: Int(parts[0]) ?? 0, rule: parts[1], details: parts.count > 2 ? parts[2] : "")
      } else {
        errors.append(line)
      }
    }
    let signal = status & 0x7f
    let end = errors.last { $0.contains("Fatal error") || $0.contains("simulation:") } ?? errors.last ?? ""
    let crash = Outcome.Verdict.failed(
      step: step, rule: [SIGALRM, SIGPROF].contains(signal) ? "a run ends" : "no crash",
      details: signal != 0 ? "signal \(signal): \(end)" : "exit \(status >> 8): \(end)")
    return Outcome(seed: child.seed, verdict: verdict ?? crash, counts: counts, lines: lines + errors.map { "  " + $0 })
  }

  private func removeFolder(_ path: String) {
    if let directory = opendir(path) {
      while let entry = readdir(directory) {
        let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if name != ".", name != ".." { unlink("\(path)/\(name)") }
      }
      closedir(directory)
    }
    rmdir(path)
  }

  // MARK: Shrinking

  /// Leaves out steps for as long as the same rule fails.
  private func shrink(_ failure: Outcome) {
    guard let rule = failure.rule else { return }
    func fails(_ steps: [Int]) -> Outcome? {
      let outcome = finish(begin(failure.seed, steps))
      return outcome.rule == rule ? outcome : nil
    }
    var steps = Array(0..<options.steps)
    if case .failed(let last, _, _) = failure.verdict, last > 0, last < options.steps, fails(Array(0...last)) != nil {
      steps = Array(0...last)
    }
    let start = processorSeconds
    var size = max(1, steps.count / 2)
    while size >= 1, processorSeconds - start < 60 {
      var hasShrunk = false
      var from = 0
      while from < steps.count, processorSeconds - start < 60 {
        let fewer = Array(steps[..<from] + steps[min(steps.count, from + size)...])
        if fails(fewer) != nil {
          steps = fewer
          hasShrunk = true
        } else {
          from += size
        }
      }
      if size == 1, !hasShrunk { break }
      size = max(1, size / 2)
      if size == 1, !hasShrunk, steps.count <= 1 { break }
    }
    let outcome = finish(begin(failure.seed, steps, isVerbose: true))
    print("\(steps.count) steps are enough:")
    for line in outcome.lines { print("  \(line)") }
    tell(outcome)
    print(
      "again: Tests/Simulation/run --seed \(failure.seed) --steps \(options.steps) --only "
        + steps.map(String.init).joined(separator: ","))
  }
}

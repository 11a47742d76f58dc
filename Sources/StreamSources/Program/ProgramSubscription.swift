import Events
import Glibc
import Reactive
import StreamRuntime

/// Lets one program run at a time. Confined to the source thread.
public final class ProgramPlace: @unchecked Sendable {
  /// The program that runs or has not ended yet.
  fileprivate var program: ChildProgram?
  /// The subscription that starts the next program.
  fileprivate weak var waiting: (any PlaceSeeker)?

  /// A place without a program.
  public init() {}
}

/// A subscription that waits for the end of another one's program.
private protocol PlaceSeeker: AnyObject {
  func advance()
}

/// A machine whose runs can deliver several batches.
protocol RunMachine: SourceMachine {
  /// Whether a batch may be delivered now.
  var isWanted: Bool { get }
  /// Counts a batch that a run has delivered.
  /// - Returns: the report for the operator.
  mutating func delivered() -> SourceReport?
}

/// A subscription whose events a program writes, one run at a time. Subclasses decide when it runs, and which events its
/// output has.
class ProgramSubscription<Machine: RunMachine>: SourceSubscription<Machine>, ChildProgram.Handler, PlaceSeeker,
  @unchecked Sendable
{
  let configuration: ProgramConfiguration
  private var place: ProgramPlace { context.place }
  /// The program of this subscription that runs.
  private var program: ChildProgram?
  /// The first error in the run, for which the program is ended; nil: none.
  private var fault: String?

  init(
    _ configuration: ProgramConfiguration, _ context: SourceContext, _ memory: SourceMemory<Machine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    self.configuration = configuration
    super.init(context, memory, to: down)
  }

  // MARK: For the kinds of programs

  /// Whether the output of the program is read now.
  var isRead: Bool { isWanted }
  /// Takes the next piece of the output.
  /// - Throws: the error in it, after the program's name; the run then fails.
  func take(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) {}
  /// Takes the end of a run that has succeeded.
  func takeEnd() throws(SourceFailure) {}
  /// The run is over.
  /// - Parameter fault: why it has failed; nil: it has not.
  func ended(_ fault: String?) {}

  /// Whether a program runs whose output is read. It is not after an error.
  final var isReading: Bool { program?.isRead == true && fault == nil }

  /// Starts the program.
  final func start() {
    context.progress(.attempted)
    do throws(SystemError) {
      let program = try ChildProgram(configuration, on: thread, handler: self)
      (self.program, place.program) = (program, program)
      program.isRead = isRead
    } catch {
      let hint = HomeDirectories.hint(on: configuration.command.first ?? "")
      ended("cannot start \(configuration.name): \(error)\(hint)")
    }
  }

  /// Ends the run, which fails for this reason.
  final func fail(_ sentence: String) {
    if fault == nil { fault = sentence }
    program?.end()
  }

  // MARK: SourceSubscription

  override var isLive: Bool { super.isLive && !thread.isStopped }

  override func retracted() { advance() }

  override func end() {
    program?.end()
    program = nil
  }

  override func advance() {
    guard isLive else { return }
    if let last = takeHeld() { give(last, nil) }
    if let program {
      program.isRead = isRead
    } else if place.program != nil {
      place.waiting = self
    } else {
      super.advance()
    }
  }

  // MARK: ChildProgram.Handler

  final func programWrote(_ bytes: UnsafeRawBufferPointer) {
    context.progress(.received(byteCount: bytes.count))
    do throws(SourceFailure) { try unsafe take(bytes) } catch { fail(error.sentence) }
    advance()
  }

  final func programSaid(_ line: String) { report(.said(line)) }

  final func programEnded(_ ending: ProgramEnding) {
    program = nil
    place.program = nil
    guard isLive else {
      place.waiting?.advance()
      return
    }
    if fault == nil { fault = ending.fault }
    if fault == nil {
      do throws(SourceFailure) { try takeEnd() } catch { fault = error.sentence }
    }
    // The next run may begin in this call.
    let failure = fault
    fault = nil
    ended(failure.map { "\(configuration.name) \($0)" })
  }
}

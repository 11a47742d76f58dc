import Events
import StreamRuntime

/// Programs of jq that answer what a source has to know of what it has received. Confined to the source thread.
final class JQExaminer: JQPrograms.Owner {
  private let purpose: String
  private let completed: (Result<[JQAnswer], SourceFailure>) -> Void
  private let report: (SourceReport) -> Void
  private var programs: JQPrograms?
  private(set) var unanswered = EventBatch()[...]
  private var answers: [JQAnswer] = []

  /// - Parameters:
  ///   - purpose: the keys with the programs, for messages.
  ///   - completed: called with the answers to all questions of one call of `examine`, never within it. Not called any
  ///     more after a failure, or after `end`.
  ///   - report: called if the process has more rights than it should.
  init(
    _ transform: JQTransform, for purpose: String, in context: SourceContext, report: @escaping (SourceReport) -> Void,
    completed: @escaping (Result<[JQAnswer], SourceFailure>) -> Void
  ) throws(SourceFailure) {
    (self.purpose, self.completed, self.report) = (purpose, completed, report)
    var transform = transform
    transform.template = context.template
    do throws(SystemError) {
      programs = try JQPrograms(
        executable: context.executable, timePerEvent: JQWorker.timePerEvent, name: context.name ?? purpose,
        transform: transform, on: context.thread, owner: self)
    } catch {
      throw SourceFailure("jq cannot be started: \(error)")
    }
  }

  /// Asks, once the last questions are answered.
  func examine(_ questions: EventBatch) {
    unanswered = questions[...]
    answers = []
    programs?.send(unanswered)
  }

  /// Ends the programs.
  func end() {
    programs?.end()
    programs = nil
  }

  private func fail(_ reason: String) {
    end()
    completed(.failure(SourceFailure(reason)))
  }

  // MARK: JQPrograms.Owner

  func programsAreReady(_ unconfined: SourceReport?) { unconfined.map(report) ?? () }

  func programsAnswered(_ answer: JQAnswer) {
    guard !unanswered.isEmpty else { return }
    answers.append(answer)
    unanswered = unanswered.dropFirst()
    guard unanswered.isEmpty else { return }
    completed(.success(answers))
  }

  func programsFailed(_ reason: String) { fail("jq examines messages for \(purpose): \(reason)") }

  func programsCannotRun(_ reason: String) { fail("the programs of \(purpose): \(reason)") }
}

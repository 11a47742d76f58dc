import Events
import StreamRuntime

/// A process in which jq answers what a source has to know of what it has received. Confined to the source thread.
final class JQExaminer: JQProcess.Owner {
  private let transform: JQTransform
  private let purpose: String
  private let context: SourceContext
  private let completed: (Result<[JQAnswer], SourceFailure>) -> Void
  private let report: (SourceReport) -> Void
  private var process: JQProcess?
  /// Whether its program is compiled.
  private var isReady = false
  /// Whether it has answered a question.
  private var hasAnswered = false
  private var questions = EventBatch()[...]
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
    (self.transform, self.purpose, self.context) = (transform, purpose, context)
    (self.completed, self.report) = (completed, report)
    do throws(SystemError) { try start() } catch { throw SourceFailure("jq cannot be started: \(error)") }
  }

  /// Asks, once the last questions are answered.
  func examine(_ questions: EventBatch) {
    self.questions = questions[...]
    answers = []
    process?.send(self.questions)
  }

  /// Ends the process.
  func end() {
    process?.end()
    process = nil
  }

  private func start() throws(SystemError) {
    (isReady, hasAnswered) = (false, false)
    let process = try JQProcess(
      executable: context.executable, timePerEvent: JQWorker.timePerEvent, name: context.name ?? purpose,
      transform: transform, on: context.thread, owner: self)
    self.process = process
    process.send(questions)
  }

  private func fail(_ reason: String) {
    end()
    completed(.failure(SourceFailure(reason)))
  }

  // MARK: JQProcess.Owner

  func processAnswered(_ answer: JQAnswer) {
    guard isReady else {
      if let mistake = answer.failure { return fail("the programs of \(purpose): \(mistake)") }
      isReady = true
      return JQProcess.unconfinedReport(answer).map(report) ?? ()
    }
    hasAnswered = true
    guard !questions.isEmpty else { return }
    answers.append(answer)
    questions = questions.dropFirst()
    guard questions.isEmpty else { return }
    completed(.success(answers))
  }

  /// As for a pipeline, a process that has answered other questions may have filled its memory with them: a new one
  /// continues.
  func processEnded(_ reason: String, isForMemory: Bool) {
    process = nil
    guard isForMemory, hasAnswered else { return fail("jq examines messages for \(purpose): \(reason)") }
    do throws(SystemError) { try start() } catch { fail("jq cannot be started: \(error)") }
  }
}

;;; Fills the heap with vectors while two threads make garbage of their own, so that the collector (Boehm's) stops
;;; threads at work and at rest; drops and replaces some, and checks all.
;;; usage: guile --no-auto-compile heap.scm MIB
(use-modules (ice-9 threads))
(define mib (string->number (cadr (command-line))))
(define count (* mib 4000))
(define table (make-vector count #f))
(define (check what) (if (not what) (begin (display "wrong\n") (primitive-exit 1))))
(define (work owner)
  (call-with-new-thread
   (lambda ()
     (let loop ((round 1) (kept '()))
       (cond ((> round (* mib 10)) owner)
             ((= 0 (modulo round 50))
              (check (= (vector-ref (car kept) 99) (+ (- round 1) owner)))
              (usleep 1000)
              (loop (+ round 1) '()))
             (else (loop (+ round 1) (cons (make-vector 100 (+ round owner)) kept))))))))
(define workers (map work '(1 2)))
(define (make number version) (make-vector 20 (+ number version)))
(do ((i 0 (+ i 1))) ((= i count)) (vector-set! table i (make i 1)))
(do ((i 0 (+ i 3))) ((>= i count)) (vector-set! table i (make i 2)))
(gc)
(define sum
  (let loop ((i 0) (sum 0))
    (if (= i count)
        sum
        (let ((word (vector-ref (vector-ref table i) 7)))
          (check (= word (+ i (if (= 0 (modulo i 3)) 2 1))))
          (loop (+ i 1) (modulo (+ (* sum 31) word) 4294967296))))))
(check (equal? (map join-thread workers) '(1 2)))
(display "whole ") (display sum) (newline)

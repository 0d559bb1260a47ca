-- | Tests of "System.IO.BlockIO". Each is named after the behaviour that it protects. Arguments choose
-- tests by a part of their names.
module Main (main) where

import qualified Cases.Contexts
import qualified Cases.Exceptions
import qualified Cases.Memory
import qualified Cases.Operations
import Control.Exception
import Control.Monad
import Data.List (isInfixOf)
import System.Environment
import System.Exit
import System.IO
import Support

main :: IO ()
main = do
  hSetBuffering stdout LineBuffering
  arguments <- getArgs
  case arguments of
    "child" : name : rest -> Cases.Contexts.child name rest
    _ -> run arguments

run :: [String] -> IO ()
run arguments = do
  let all' = concat [Cases.Operations.cases, Cases.Contexts.cases, Cases.Exceptions.cases, Cases.Memory.cases]
      chosen = [c | c@(Case name _) <- all', null arguments || any (`isInfixOf` name) arguments]
  failed <- filterM fails chosen
  putStrLn (show (length chosen - length failed) ++ " passed, " ++ show (length failed) ++ " failed")
  when (null chosen || not (null failed)) exitFailure
  where
    fails (Case name body) = do
      outcome <- try body
      case outcome of
        Right () -> False <$ putStrLn ("ok      " ++ name)
        Left e -> True <$ putStrLn ("FAILED  " ++ name ++ ": " ++ show (e :: SomeException))
